"""Whatever our hooks raise stays with us: SGLang goes on with its own result, and the hooks are told to stand down.

SGLang calls a hook in the middle of its work, and an exception there ends the process and every request in it. So each
hook runs inside a guard: of a hook ``after`` a function SGLang's result stands, and a function with a hook ``around``
it is called exactly once, by the hook or else by the guard. What SGLang itself raises goes through as without us.
"""

from collections.abc import Callable, Mapping, Set
from functools import wraps

from laps_sd.serving.hooks.targets import Target

#: Told of the hook by the name of the function that it hooks, and of what it raised.
FallBack = Callable[[str, Exception], None]


def guarded(
    targets: tuple[Target, ...],
    hooks: Mapping[str, Callable[..., object]],
    fall_back: FallBack,
    starting: Set[str] = frozenset(),
) -> dict[str, Callable[..., object]]:
    """Return the hooks, each inside a guard.

    Parameters
    ----------
    targets : tuple of Target
        Their kinds.
    hooks : mapping
        By the last part of the target's path.
    fall_back : callable
        Called when a hook has raised; must not raise itself.
    starting : set of str, optional
        Hooks that run before the first request only: they are left as they are, because a server that cannot start as
        it was asked to must not start.
    """
    guards = {"after": guard_after, "around": guard_around}
    kinds = {target.name: target.kind for target in targets}
    return {
        name: hook if name in starting else guards[kinds[name]](name, hook, fall_back) for name, hook in hooks.items()
    }


def guard_after(name: str, hook: Callable[..., object], fall_back: FallBack) -> Callable[..., object]:
    """Guard a hook that SGLang calls after a function."""

    @wraps(hook)
    def run(*args: object, **kwargs: object) -> object:
        try:
            return hook(*args, **kwargs)
        except Exception as error:
            fall_back(name, error)
            return None  # SGLang's own result stands

    return run


def guard_around(name: str, hook: Callable[..., object], fall_back: FallBack) -> Callable[..., object]:
    """Guard a hook that SGLang calls instead of a function, which the hook calls."""

    @wraps(hook)
    def run(original: Callable[..., object], *args: object, **kwargs: object) -> object:
        once = _Once(original)
        try:
            return hook(once, *args, **kwargs)
        except Exception as error:
            if once.raised is error:
                raise  # SGLang's own exception, on its way to SGLang
            fall_back(name, error)
            return once.result if once.returned else original(*args, **kwargs)

    return run


class _Once:
    """A function of SGLang's that remembers what came of its call."""

    __slots__ = ("_function", "raised", "result", "returned")

    def __init__(self, function: Callable[..., object]) -> None:
        self._function = function
        self.returned = False
        self.result: object = None
        self.raised: Exception | None = None

    def __call__(self, *args: object, **kwargs: object) -> object:
        try:
            self.result = self._function(*args, **kwargs)
        except Exception as error:
            self.raised = error
            raise
        self.returned = True
        return self.result
