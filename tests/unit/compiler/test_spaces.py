"""Search-space files: the shipped ones are valid, and bad ones are refused with file, key and reason."""

from pathlib import Path

import pytest

from autotune.compiler.target import spaces
from autotune.compiler.target.targets import TARGETS, find, from_json
from autotune.errors import UsageError

GOOD = """
schema_version = 1
family = "cpu"
description = "test"
[[rules]]
kind = "inline_constants"
"""


def test_every_shipped_space_is_valid_and_belongs_to_a_target() -> None:
    files = {path.name for path in spaces.folder().glob("*.toml")}
    assert files == {target.space_file for target in TARGETS}
    for target in TARGETS:
        assert spaces.load(target.space_path()).family == target.family


def test_shipped_schema_is_the_one_of_the_models() -> None:
    shipped = (spaces.folder() / "schema.json").read_text(encoding="utf-8")
    assert shipped == spaces.schema_text()


@pytest.mark.parametrize(
    ("text", "key", "reason"),
    [
        (GOOD.replace('family = "cpu"', 'family = "gpu"'), "family", "'cpu' or 'opencl'"),
        (GOOD + "[search]\npopulation = 0\n", "search.population", "greater than 0"),
        (GOOD + "[search]\npopulation = 100001\n", "search.population", "or equal to 100000"),
        (GOOD + "[measure]\nrepeats = 1000000000\n", "measure.repeats", "or equal to 100000"),
        (GOOD + "[search]\npopulatoin = 4\n", "search.populatoin", "is not a known key"),
        (GOOD.replace("inline_constants", "inline"), "rules.0", "inline"),
        (GOOD.replace("schema_version = 1", "schema_version = 9"), "schema_version", "should be 1"),
        (GOOD.split("[[rules]]")[0], "rules", "required"),
        (
            GOOD + '[[rules]]\nkind = "multi_level_tiling"\nstructure = "SSS"\n',
            "rules.1.multi_level_tiling.structure",
            "match pattern",
        ),
        (
            GOOD + '[formulations]\n"conv2d.forward" = []\n',
            "formulations.conv2d.forward",
            "least 1",
        ),
        (GOOD + '[[rules]]\nkind = "implicit_gemm"\n', "rules", "of opencl spaces"),
        *(
            (
                GOOD + f'[[rules]]\nkind = "{kind}"\n{key} = {value}\n',
                f"rules.1.{kind}.{key}",
                reason,
            )
            for kind, key, value, reason in (
                ("implicit_gemm", "loads", "[3]", "should be 1, 2, 4, 8 or 16"),
                ("implicit_gemm", "vectors", "[]", "least 1"),
                ("implicit_gemm", "staged", "[]", "least 1"),
                ("few_channels", "channels", "[]", "least 1"),
                ("depthwise", "own", "[0]", "greater than 0"),
                ("register_product", "lanes", "[]", "least 1"),
            )
        ),
        (
            GOOD + "[compile]\nllvm_unroll_threshold = true\n",
            "compile.llvm_unroll_threshold",
            "int",
        ),
        (
            GOOD.replace("schema_version = 1", "schema_version = true"),
            "schema_version",
            "should be 1",
        ),
        (
            GOOD + "[compile]\nllvm_unroll_threshold = 10001\n",
            "compile.llvm_unroll_threshold",
            "10000",
        ),
        (GOOD + '[compile]\nllvm_slp_vectorizer = "no"\n', "compile.llvm_slp_vectorizer", "bool"),
    ],
)
def test_a_bad_space_names_file_key_and_reason(
    tmp_path: Path, text: str, key: str, reason: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        spaces.load(path)
    assert str(path) in caught.value.message
    assert f"key {key}" in caught.value.message
    assert reason in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("text", ["family = ", "a = 1\na = 2\n", "\x00"])
def test_malformed_toml_is_refused_by_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"broken\.toml: not valid TOML"):
        spaces.load(path)


def test_a_space_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8"):
        spaces.load(path)


def test_a_missing_space_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        spaces.load(tmp_path / "none.toml")


def test_without_threads_changes_only_parallelism() -> None:
    space = spaces.load(find("cpu").space_path())
    serial = space.without_threads()
    changed = [
        (before, after)
        for before, after in zip(space.rules, serial.rules, strict=True)
        if before != after
    ]
    *tiled, parallel = (after for _, after in changed)
    assert {rule.kind for rule in tiled} == {
        "streaming",
        "row_sums",
        "joined_parts",
        "vector_rows",
        "register_product",
        "attention",
    }
    assert not any(rule.threads for rule in tiled)
    assert isinstance(parallel, spaces.ParallelVectorizeUnroll)
    assert parallel.max_jobs_per_core == -1


@pytest.mark.parametrize(
    ("target", "kind", "family"), [("cpu", "depthwise", "opencl"), ("mali", "row_sums", "cpu")]
)
def test_a_rule_of_another_family_is_refused(
    tmp_path: Path, target: str, kind: str, family: str
) -> None:
    path = tmp_path / "space.toml"
    text = find(target).space_path().read_text(encoding="utf-8")
    path.write_text(f'{text}\n[[rules]]\nkind = "{kind}"\n', encoding="utf-8")
    with pytest.raises(UsageError, match=f"{kind} is a rule of {family} spaces"):
        spaces.load(path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not valid JSON"),
        ("[]", "needs a tag, or an object"),
        ('{"kind": "cuda"}', "needs a tag, or an object"),
        ('{"kind": "opencl", "host": {"kind": "llvm"}}', "key host"),
        ('{"kind": "llvm", "mtriple": "riscv64-linux-gnu"}', "neither run nor checked"),
    ],
)
def test_a_bad_target_file_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "target.json"
    path.write_text(text)
    with pytest.raises(UsageError, match=reason):
        from_json(path)


def test_an_unknown_target_lists_the_known() -> None:
    with pytest.raises(UsageError, match="adreno, mali, opencl"):
        find("hexagon")


def test_half_storage_comes_with_its_tolerance_where_a_rule_knows_it() -> None:
    plain = spaces.load(spaces.folder() / "mali.toml")
    half = plain.with_half_storage()
    assert (plain.tolerance, half.tolerance, half.measure.tolerance) == (1e-4, 0.02, 1e-4)
    (rule,) = (rule for rule in half.rules if isinstance(rule, spaces.ImplicitGemm))
    assert rule.half == (False, True)
    with pytest.raises(UsageError, match="no kernels with operands in half precision"):
        spaces.load(spaces.folder() / "host_cpu.toml").with_half_storage()
