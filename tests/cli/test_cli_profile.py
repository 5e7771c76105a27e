"""`pipeplan profile`, and the whole way from a model to stages that equal it."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="profiling needs PyTorch")

ZOO = "pipeplan.models.zoo"


def test_estimate_writes_a_profile_that_plans(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "p.json"
    text = tmp_path / "p.graph.txt"
    ran = run(
        "profile", f"{ZOO}.vgg:vgg16", "-o", target, "--estimate", "a100", "--graph-txt", text,
        "--name", "mine",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    data = json.loads(target.read_text())
    assert data["schema"] == "pipeplan.profile/1"
    assert data["name"] == "mine"
    assert data["metadata"]["method"] == "estimated"
    assert f"pipeplan solve {target}" in ran.out
    for profile in (target, text):
        solved = run("solve", profile, "-n", "4", "-b", "10GB/s", "--json")
        assert solved.code == 0, solved.err
        assert json.loads(solved.out)["status"] == "OPTIMAL"


@pytest.mark.parametrize(("depth", "cluster"), [(1, "-n 2 -b 10GB/s"), (9, "-n 4 -b 10GB/s")])
def test_a_small_model_is_told_of_a_small_cluster(  # type: ignore[no-untyped-def]
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, depth: int, cluster: str
) -> None:
    (tmp_path / "tiny_model.py").write_text(
        "import torch\nfrom torch import nn\n\n"
        "def build(depth=1):\n"
        "    return nn.Sequential(*(nn.Linear(4, 4) for _ in range(depth))), (torch.randn(2, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    ran = run("profile", "tiny_model:build", "-o", "tiny.json", "--size", f"depth={depth}")
    assert ran.code == 0, ran.err
    assert "5 repeats, which scatter by " in ran.out
    assert "with your own cluster in place of this one:" in ran.out
    assert ran.out.endswith(f"  pipeplan solve tiny.json {cluster}\n")
    told = json.loads(Path("tiny.json").read_text())["metadata"]["scatter"]
    assert set(told["layers"]) == {str(i) for i in range(depth)}
    # What is suspicious is said here, and again by whoever reads the profile.
    told["total"] = 0.5
    data = json.loads(Path("tiny.json").read_text())
    data["metadata"]["scatter"] = told
    Path("tiny.json").write_text(json.dumps(data))
    assert "scatter by 50 %" in run("solve", "tiny.json", *cluster.split()).err


def test_from_a_model_to_stages_that_equal_it(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    profile, plan, package = (tmp_path / x for x in ("p.json", "plan.json", "net"))
    sizes = ["--size", "width=8", "--size", "depth=2", "--size", "image=32", "--size", "batch=2"]
    ran = run(
        "profile", f"{ZOO}.unet:unet", "-o", profile, "--repeats", "1", "--warm-up", "0", *sizes
    )
    assert ran.code == 0, ran.err
    assert "measured on cpu" in ran.out
    ran = run("solve", profile, "-n", "3", "-b", "10GB/s", "--straight", "-o", plan)
    assert ran.code == 0, ran.err
    assert run("generate", plan, "-o", package).code == 0
    ran = run("verify", package)
    assert ran.code == 0, ran.out
    assert "equal: nothing differs" in ran.out


@pytest.mark.parametrize(
    ("extra", "words"),
    [
        (["nonsense"], "MODULE:FACTORY"),
        (["no_such_module_here:f"], "no module 'no_such_module_here'"),
        ([f"{ZOO}.vgg:missing"], "has no 'missing'"),
        ([f"{ZOO}.vgg:vgg16", "--size", "batch"], "not NAME=VALUE"),
        ([f"{ZOO}.vgg:vgg16", "--size", "batch=1", "--size", "batch=2"], "batch twice"),
        ([f"{ZOO}.vgg:vgg16", "--size", "wrong=1", "--estimate", "a100"], "the factory failed"),
        ([f"{ZOO}.vgg:vgg16", "--estimate", "abacus"], "abacus"),
        ([f"{ZOO}.vgg:vgg16", "--estimate", "a100", "--device", "cpu"], "--device has no meaning"),
        ([f"{ZOO}.vgg:vgg16", "--device", "warp"], "warp"),
        ([f"{ZOO}.vgg:vgg16", "--repeats", "0"], "--repeats is 0"),
        ([f"{ZOO}.vgg:vgg16", "--warm-up", "-1"], "--warm-up is -1"),
    ],
)
def test_bad_input_is_one_message(run, tmp_path: Path, extra: list[str], words: str) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "p.json"
    ran = run("profile", *extra, "-o", target)
    assert ran.code == 2
    assert words in ran.err
    assert "Traceback" not in ran.err
    assert not target.exists()


def test_nothing_is_overwritten(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    target = tmp_path / "p.json"
    target.write_text("mine")
    ran = run("profile", f"{ZOO}.vgg:vgg16", "-o", target, "--estimate", "a100")
    assert ran.code == 2
    assert target.read_text() == "mine"


def test_without_torch_it_says_what_to_install(run, tmp_path, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    import builtins

    real = builtins.__import__

    def refuse(name: str, *rest: object) -> object:
        if name.partition(".")[0] == "pipeplan" and name.startswith("pipeplan.models.profiler"):
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", refuse)
    ran = run("profile", f"{ZOO}.vgg:vgg16", "-o", tmp_path / "p.json")
    assert ran.code == 2
    assert "pip install 'pipeplan[torch]'" in ran.err
