"""The two ways a command may fail, and the exit codes they carry.

A leaf: every room but the pure ``scheduler`` may raise these. The message is one clear sentence that says what
is wrong and what to do; the command line prints it and nothing else unless ``--debug``.
"""


class LapsError(Exception):
    """Base of every error that is meant for a person."""

    exit_code: int = 1


class WorkError(LapsError):
    """The work could not be done (a server died, training cannot converge): exit code 1."""

    exit_code = 1


class InputError(LapsError):
    """Wrong usage or unreadable input (a missing file, a bad row): exit code 2."""

    exit_code = 2


#: Which extra of the package brings a module that is not always installed.
EXTRA_OF = {
    "mlflow": "train",
    "pandas": "train",
    "sklearn": "train",
    "plotly": "train",
    "jinja2": "train",
    "torch": "transformer",
    "transformers": "transformer",
    "tokenizers": "transformer",
    "sglang": "sglang",
}


def not_installed(error: ModuleNotFoundError) -> WorkError:
    """Return the failure of an import as one sentence that names the package and what brings it."""
    module = str(error.name).partition(".")[0]
    package = {"sklearn": "scikit-learn"}.get(module, module)
    extra = EXTRA_OF.get(module)
    brings = f"'laps-sd[{extra}]'" if extra else package
    return WorkError(f"this needs {package}, which is not installed: pip install {brings}")
