"""The shape of the code base: imports run one way, start-up is light, nothing unsafe is read."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import clearformer

ROOT = Path(clearformer.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# lowest first; a package may import from itself and from those before it, so that no two import each other
LAYERS = [
    ["errors"],
    ["untrusted_files"],
    ["spec"],
    ["arrangements"],
    ["presets"],
    ["core"],
    ["kernels"],
    ["assemble"],
    ["text"],
    ["data"],
    ["generate"],
    ["checkpoints"],
    ["static"],
    ["explain", "page"],  # a trace shows itself as the page, and the page is drawn from a trace
    ["tasks"],
    ["training"],
    ["notes"],
    ["bench"],
    ["serve"],
    ["cli"],
    ["__init__", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
# inside the core, the same
CORE = [
    ["step", "places"],
    ["patterns"],
    ["positions", "kv"],
    ["kernel"],
    ["attention", "feedforward"],
    ["block", "embed", "heads"],
    ["model"],
]
CORE_LEVEL = {name: level for level, names in enumerate(CORE) for name in names}


def imports(path: Path) -> list[tuple[str, bool]]:
    """What a file imports from the package, and whether only for the type checker."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    checking = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("clearformer"):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found += [(name.removeprefix("clearformer").strip("."), id(node) in checking) for name in names]
        elif isinstance(node, ast.Import):
            found += [
                (a.name.removeprefix("clearformer.").strip("."), id(node) in checking)
                for a in node.names
                if a.name.startswith("clearformer")
            ]
    return found


def part(path: Path) -> list[str]:
    return list(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(part(path)))
def test_imports_run_downward(path: Path) -> None:
    own = part(path)
    assert own[0] in LEVEL, f"{own[0]} has no layer yet: add it to LAYERS"
    for name, for_checking in imports(path):
        words = name.split(".")
        if own[0] == "__init__" or words[0] not in LEVEL:
            continue
        assert LEVEL[words[0]] <= LEVEL[own[0]], f"{'/'.join(own)} imports {name}, which is above it"
        if own[0] == words[0] == "core" and len(words) > 1 and words[1] in CORE_LEVEL and not for_checking:
            assert CORE_LEVEL[words[1]] <= CORE_LEVEL[own[1]], f"core/{own[1]} imports {name}, which is above it"


def test_the_core_knows_torch_and_the_spec_only() -> None:
    for path in (ROOT / "core").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = (
                [node.module]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            for module in modules:
                top = (module or "").split(".")[0]
                assert top in {"torch", "clearformer", *sys.stdlib_module_names}, f"{path.name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(part(path)))
def test_nothing_unsafe_and_nothing_too_long(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert not called & {"eval", "exec", "compile"}
    named = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) for alias in node.names
    }
    assert not named & {"pickle", "dill", "marshal", "shelve"}
    assert "torch.load(" not in text
    assert len(text.splitlines()) <= 600, "too long to read at one sitting"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_importing_the_package_imports_nothing_heavy() -> None:
    heavy = "{'torch', 'numpy', 'pydantic', 'rich', 'safetensors', 'transformers'}"
    assert run(f"import sys, clearformer; print(sorted({heavy} & set(sys.modules)))") == "[]"
    assert run("import sys, clearformer.cli; print('torch' in sys.modules)") == "False"
    assert run("import sys, clearformer; clearformer.presets.bert(); print('torch' in sys.modules)") == "False"


def test_the_public_names_are_there() -> None:
    for name in clearformer.__all__:
        assert getattr(clearformer, name) is not None
    assert set(clearformer.__all__) == {"__version__", *clearformer._HOMES, *clearformer._MODULES}
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        clearformer.nonsense  # noqa: B018


def test_the_version_is_the_project_s() -> None:
    import tomllib

    project = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["version"] == clearformer.__version__
