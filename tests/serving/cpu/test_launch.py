"""Who may use the stand-ins, how a CPU server is started, and how everything else is refused."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from laps_sd.errors import InputError, WorkError
from laps_sd.serving.cpu import guard, launch, model

COMMAND = [sys.executable, "-c"]


def python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a fresh interpreter with the variables ``env`` on top."""
    whole = {**os.environ, **env}
    return subprocess.run([*COMMAND, code], env=whole, capture_output=True, text=True, timeout=120, check=False)


def standin_path(*names: str) -> str:
    return os.pathsep.join(str(launch.STANDINS / name) for name in names)


# --- the stand-ins --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", ["sgl_kernel", "triton", "torchvision"])
def test_a_standin_outside_our_process_tree_does_not_import(module: str) -> None:
    ended = python(f"import {module}", PYTHONPATH=standin_path(module), LAPS_SD_CPU="", PYTHONPROFILEIMPORTTIME="")
    assert ended.returncode == 1
    assert "only `laps-sd serve --cpu` may use" in ended.stderr


def real_distribution(folder: Path, name: str, version: str) -> None:
    """Make pip's metadata of an installed distribution."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("sgl_kernel", "sgl-kernel"),
        ("sgl_kernel", "sglang-kernel"),
        ("triton", "triton"),
        ("torchvision", "torchvision"),
    ],
)
def test_a_standin_beside_a_real_build_does_not_import(tmp_path: Path, module: str, distribution: str) -> None:
    real_distribution(tmp_path, distribution, "9.9")
    path = os.pathsep.join([standin_path(module), str(tmp_path)])
    ended = python(f"import {module}", PYTHONPATH=path, LAPS_SD_CPU="1")
    assert ended.returncode == 1
    assert f"{distribution} 9.9 is installed" in ended.stderr


def test_the_kernel_standin_does_not_import_where_torch_sees_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class cuda:\n    @staticmethod\n    def is_available():\n        return True\n")
    path = os.pathsep.join([standin_path("sgl_kernel"), str(tmp_path)])
    ended = python("import sgl_kernel", PYTHONPATH=path, LAPS_SD_CPU="1")
    assert ended.returncode == 1
    assert "a GPU is visible to torch" in ended.stderr


def test_triton_kernels_can_be_defined_and_not_launched() -> None:
    code = """
import triton, triton.language as tl
from triton.runtime.jit import JITFunction
@triton.autotune(configs=[triton.Config({"BLOCK": 8}, num_warps=4)], key=["n"])
@triton.jit
def kernel(x, n: tl.constexpr): ...
@triton.jit(do_not_specialize=["n"])
def other(x, n): ...
assert kernel.arg_names == ("x", "n")
assert (triton.cdiv(7, 2), triton.next_power_of_2(9)) == (4, 16)
def typed(x: "tl.tensor | None" = None, d: tl.float32 | tl.float16 = None): ...
for launch in (lambda: kernel[(1,)](1, 2), lambda: other(1, 2), lambda: tl.load(3)):
    try:
        launch()
    except RuntimeError as error:
        assert "stand-in of laps-sd" in str(error)
    else:
        raise SystemExit("launched")
"""
    ended = python(code, PYTHONPATH=standin_path("triton"), LAPS_SD_CPU="1")
    assert ended.returncode == 0, ended.stderr


def test_torchvision_names_can_be_imported_and_not_called() -> None:
    code = """
from torchvision.transforms import InterpolationMode, functional, v2
from torchvision.io import decode_image
assert InterpolationMode.BICUBIC.value == "bicubic"
try:
    decode_image(b"")
except NotImplementedError as error:
    assert "torchvision.io.decode_image" in str(error)
else:
    raise SystemExit("decoded")
"""
    ended = python(code, PYTHONPATH=standin_path("torchvision"), LAPS_SD_CPU="1")
    assert ended.returncode == 0, ended.stderr


# --- the environment ------------------------------------------------------------------------------------------------


def test_the_server_sees_the_standins_first_and_once() -> None:
    once = launch.environment({"PYTHONPATH": "/mine", "PATH": "/bin"})
    twice = launch.environment(once)
    assert once["PYTHONPATH"] == standin_path("sgl_kernel", "triton", "torchvision") + os.pathsep + "/mine"
    assert twice["PYTHONPATH"] == once["PYTHONPATH"]
    assert once[guard.ACTIVE] == once["SGLANG_USE_CPU_ENGINE"] == once["TORCHDYNAMO_DISABLE"] == "1"


def test_a_real_build_is_not_shadowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "real_build", lambda module: "triton 3.8.0" if module == "triton" else None)
    assert launch.environment({})["PYTHONPATH"] == standin_path("sgl_kernel", "torchvision")


def test_threads_and_hub_access_of_the_caller_win() -> None:
    env = launch.environment({"OMP_NUM_THREADS": "4", "HF_HUB_OFFLINE": "0"})
    assert (env["OMP_NUM_THREADS"], env["HF_HUB_OFFLINE"]) == ("4", "0")
    assert launch.environment({})["OMP_NUM_THREADS"] == "1"


def test_standins_are_lent_to_this_process_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(guard.ACTIVE, raising=False)
    monkeypatch.setenv("TORCHDYNAMO_DISABLE", "0")
    before = list(sys.path)
    with launch.importable():
        assert guard.active()
        assert sys.path[0] == standin_path("sgl_kernel")
    assert not guard.active()
    assert os.environ["TORCHDYNAMO_DISABLE"] == "0"
    assert sys.path == before


# --- checks and arguments -------------------------------------------------------------------------------------------


def versions(monkeypatch: pytest.MonkeyPatch, **found: str) -> None:
    def version(name: str) -> str:
        try:
            return found[name.replace("-", "_")]
        except KeyError:
            raise launch.PackageNotFoundError(name) from None

    monkeypatch.setattr(launch, "version", version)
    monkeypatch.setattr(guard, "version", version)


def test_the_supported_environment_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, sglang="0.5.23", torch="2.13.0+cpu")
    launch.check()


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"torch": "2.13.0"}, "SGLang is not installed"),
        ({"sglang": "0.5.22", "torch": "2.13.0"}, r"supports SGLang 0\.5\.23, but 0\.5\.22 is installed"),
        ({"sglang": "0.5.23"}, "torch is not installed"),
        ({"sglang": "0.5.23", "torch": "2.14.1", "sglang_kernel": "0.4.10"}, r"sglang-kernel 0\.4\.10 is installed"),
    ],
)
def test_another_environment_is_refused(monkeypatch: pytest.MonkeyPatch, found: dict[str, str], words: str) -> None:
    versions(monkeypatch, **found)
    with pytest.raises(WorkError, match=words):
        launch.check()


def test_ngram_without_a_compiler_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    versions(monkeypatch, sglang="0.5.23", torch="2.13.0")
    monkeypatch.setenv("PATH", "/no/such/folder")
    launch.check(["--speculative-algorithm", "STANDALONE"])
    with pytest.raises(WorkError, match=r"install g\+\+"):
        launch.check(["--speculative-algorithm", "NGRAM"])


def test_defaults_complete_the_arguments_and_never_override_them() -> None:
    args = launch.with_defaults(["--dtype=bfloat16", "--context-length", "512"])
    assert args[:3] == ["--dtype=bfloat16", "--context-length", "512"]
    assert args.count("--context-length") == 1
    assert "--dtype" not in args[1:]
    assert args[args.index("--device") + 1] == "cpu"
    assert "--sleep-on-idle" in args


@pytest.fixture
def a_model(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    return tmp_path


def test_the_demo_model_is_served_where_no_model_is_named(monkeypatch: pytest.MonkeyPatch, a_model: Path) -> None:
    monkeypatch.setattr(model, "demo_model", lambda: a_model)
    assert launch.with_model(["--port", "1"]) == ["--model-path", str(a_model), "--port", "1"]
    other = ["--model-path", str(a_model)]
    assert launch.with_model(other) == other
    assert launch.with_model([f"--model={a_model}"]) == [f"--model={a_model}"]


def test_the_demo_model_brings_its_draft(monkeypatch: pytest.MonkeyPatch, a_model: Path) -> None:
    monkeypatch.setattr(model, "demo_model", lambda: a_model)
    monkeypatch.setattr(model, "draft_model", lambda: Path("/draft"))
    standalone = ["--speculative-algorithm", "STANDALONE"]
    draft = ["--speculative-draft-model-path", "/draft"]
    assert launch.with_model(standalone) == ["--model-path", str(a_model), *draft, *standalone]
    own = [*standalone, "--speculative-draft-model-path", str(a_model)]
    assert launch.with_model(own) == ["--model-path", str(a_model), *own]
    with pytest.raises(InputError, match="/mine does not exist"):
        launch.with_model([*standalone, "--speculative-draft-model-path", "/mine"])


def test_a_named_folder_must_hold_a_model(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no config\.json"):
        launch.with_model(["--model-path", str(tmp_path)])
    with pytest.raises(InputError, match="does not exist"):
        launch.with_model([f"--model-path={tmp_path}/none"])


# --- the plugin -----------------------------------------------------------------------------------------------------

ACTIVATE = "from laps_sd.serving.cpu.plugin import activate; activate(); import sys; print('sgl_kernel' in sys.modules)"


def test_the_plugin_does_nothing_in_other_processes() -> None:
    ended = python(ACTIVATE, LAPS_SD_CPU="", PYTHONPATH="")
    assert (ended.returncode, ended.stdout) == (0, "False\n")


def test_the_plugin_refuses_a_tree_without_standins(tmp_path: Path) -> None:
    ended = python(ACTIVATE, LAPS_SD_CPU="1", PYTHONPATH="")
    assert ended.returncode == 1
    assert ended.stderr == "laps-sd: No module named 'sgl_kernel'\n"


def test_the_plugin_refuses_a_foreign_kernel(tmp_path: Path) -> None:
    (tmp_path / "sgl_kernel.py").write_text("")
    ended = python(ACTIVATE, LAPS_SD_CPU="1", PYTHONPATH=str(tmp_path))
    assert ended.returncode == 1
    assert ended.stderr.startswith("laps-sd: the CPU stand-in is asked for, but sgl_kernel is a real build")
