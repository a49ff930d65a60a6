"""`autotune export --format opencl`: kernels that other engines run on OpenCL without TVM."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command import autotune, one_folder
from exports import DATA, compiled, exported, said, untuned_variant
from opencl_drivers import driver
from test_export_c import kinds

from autotune.compiler.export.variants import Variant, with_safe_variant
from autotune.compiler.export.verification import verify
from autotune.compiler.native import opencl_sidecar
from autotune.workloads.spec import parse_kernel

MATMUL = "matmul:m=32,n=48,k=40"
NAME = "matmul_forward_m32n48k40"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the device that stands in for a GPU."""
    logs = tmp_path_factory.mktemp("logs")
    done = autotune(
        "kernels", "--target", "adreno", "--op", MATMUL, "--trials", "4", "--logs", logs
    )
    assert done.returncode == 0, done.stderr
    return one_folder(logs)


@pytest.fixture(scope="module")
def library(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("cl") / "out"
    done = autotune(
        "export", run, "--format", "opencl", "--name", "kernels", "--out", out, "--allow-stand-in"
    )
    assert done.returncode == 0, done.stderr
    return out


@pytest.fixture(scope="module")
def loader(library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The test's program, compiled as engines are: without exceptions."""
    out = tmp_path_factory.mktemp("loader") / "loader"
    return compiled(
        DATA / "loader.cc", out, f"-I{library}/include", "-fno-exceptions", "-fno-rtti", "-ldl", "-lpthread",
        compiler="g++",
    )  # fmt: skip


def copy_of(library: Path, out: Path) -> dict[str, Any]:
    """Copies an export; its launch table."""
    subprocess.run(["cp", "-r", library, out], check=True)
    table: dict[str, Any] = json.loads((out / "launch_table.json").read_text())
    return table


def rewrite(out: Path, table: dict[str, Any]) -> None:
    (out / "launch_table.json").write_text(json.dumps(table))


def test_stand_ins_are_refused_in_every_format(run: Path, tmp_path: Path) -> None:
    for kind in ("tvm", "opencl"):
        done = autotune("export", run, "--format", kind, "--out", tmp_path / kind)
        assert (done.returncode, "stand-in" in done.stderr) == (2, True), done.stderr
        assert not (tmp_path / kind).exists()


def test_kernels_without_a_valid_time_are_exported_untuned_and_named(
    run: Path, tmp_path: Path
) -> None:
    """As those whose default TVM schedules wrongly, where no trial was left for them."""
    copy, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(run, copy)
    result = json.loads((copy / "result.json").read_text())
    name = result["tasks"][-1]["name"]
    result["tasks"][-1].update(default_ms=None, tuned_ms=None, speedup=None, ci=None, digest="")
    (copy / "result.json").write_text(json.dumps(result))
    done = autotune("export", copy, "--format", "opencl", "--out", out, "--allow-stand-in")
    assert done.returncode == 0, done.stderr
    assert f"adreno: untuned, since no schedule had a valid time: {name}" in done.stderr
    assert done.stderr.count("valid time") == 1
    results = json.loads(autotune("verify", out, "--json").stdout)["results"]
    assert [one["status"] for one in results if one["kernel"] == name] == ["ok", "ok"], results


def test_verify_runs_every_variant_on_this_device(library: Path) -> None:
    done = autotune("verify", library, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(done.stdout)["results"]
    assert {(one["variant"], one["status"]) for one in results} == {
        ("default", "ok"),
        ("adreno", "ok"),
    }
    assert len(results) == 6


def test_the_example_needs_no_tvm(library: Path, tmp_path: Path) -> None:
    for command in (
        ["cmake", "-S", library / "example", "-B", tmp_path, "-DCHECK_WERROR=ON"],
        ["cmake", "--build", tmp_path],
    ):
        subprocess.run(command, check=True, capture_output=True)
    linked = subprocess.run(["ldd", tmp_path / "check"], capture_output=True, text=True, check=True)
    assert "tvm" not in linked.stdout
    assert "OpenCL" not in linked.stdout  # opened when it is used
    lines = said(tmp_path / "check", library, "adreno", HOME=str(tmp_path)).splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["ok"] * 3


def test_cmake_finds_the_loader_by_the_lines_of_the_readme(library: Path, tmp_path: Path) -> None:
    lines = re.findall(
        r"^    ((?:find_package|target_link_libraries).*)$",
        (library / "README.md").read_text(),
        re.MULTILINE,
    )
    found, linked = (line.replace(".../lib/cmake", f"{library}/lib/cmake") for line in lines)
    head = "cmake_minimum_required(VERSION 3.18)\nproject(app LANGUAGES CXX)\n"
    made = f"{head}{found}\nadd_executable(app main.cc)\n{linked}\n"
    (tmp_path / "CMakeLists.txt").write_text(made)
    (tmp_path / "main.cc").write_text(
        "#include <autotune_opencl.hpp>\nint main() { return autotune_opencl::Status().ok() ? 0 : 1; }\n"
    )
    for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"]):
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert said(tmp_path / "build" / "app") == ""


def test_kernels_of_every_kind_are_right(tmp_path: Path) -> None:
    # With two or more samples: TVM's own default is wrong for some fused updates of one, and no run would take it.
    kernels = kinds("mobilenet_v2", 2)
    safe, _ = with_safe_variant(
        [untuned_variant("opencl", kernels)], untuned_variant("opencl", []).target
    )
    named = Variant("plain", safe.target, safe.space, safe.kernels)
    exported([named], tmp_path / "out", "opencl", check_all=True)
    table = json.loads((tmp_path / "out" / "launch_table.json").read_text())
    recipes = table["variants"][0]["kernels"].values()
    assert max(len(recipe["launches"]) for recipe in recipes) > 2
    assert any(recipe["temporaries"] for recipe in recipes)
    verdict = verify(tmp_path / "out", None)
    assert verdict.ok, [one for one in verdict.results if one.status != "ok"]
    assert len(verdict.results) == 2 * len(kernels)


def test_the_launch_table_says_what_the_source_has(library: Path) -> None:
    table = json.loads((library / "launch_table.json").read_text())
    assert table["schema_version"] == 1
    for variant in table["variants"]:
        for recipe in variant["kernels"].values():
            source = (library / recipe["source"]).read_text()
            for launch in recipe["launches"]:
                declared = re.search(rf"__kernel void {launch['function']}\((.*)\) {{", source)
                assert declared
                assert len(launch["arguments"]) == declared[1].count(",") + 1
                assert len(launch["global"]) == len(launch["local"])


def test_compiled_programs_are_kept_and_torn_or_stale_ones_made_again(
    library: Path, loader: Path, tmp_path: Path
) -> None:
    cache, out = tmp_path / "some" / "cache", tmp_path / "out"
    copy_of(library, out)
    word = f"cache={cache}"
    home = {"HOME": str(tmp_path)}
    assert said(loader, out, NAME, "times=3", **home).strip() == "ok default compiled=1 cached=0"
    assert said(loader, out, NAME, word, **home).strip() == "ok default compiled=1 cached=0"
    assert said(loader, out, NAME, word, **home).strip() == "ok default compiled=0 cached=1"
    (kept,) = cache.iterdir()
    whole = kept.read_bytes()
    for damaged in (
        whole[:-7],
        whole[: len(whole) // 2],
        b"",
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole + b"x",
    ):
        kept.write_bytes(damaged)
        assert said(loader, out, NAME, word, **home).strip() == "ok default compiled=1 cached=0"
        assert kept.read_bytes()[:18] == b"autotune-opencl-1 "
        assert said(loader, out, NAME, word, **home).strip() == "ok default compiled=0 cached=1"
    for source in (out / "kernels").iterdir():
        source.write_text(source.read_text() + "\n// changed\n")
    assert said(loader, out, NAME, word, **home).strip() == "ok default compiled=1 cached=0"
    assert len(list(cache.iterdir())) == 2
    unwritable = said(loader, out, NAME, "cache=/proc/none", **home)
    assert unwritable.strip() == "ok default compiled=1 cached=0"


def test_programs_that_were_not_used_for_long_make_room(
    library: Path, loader: Path, tmp_path: Path
) -> None:
    """Nor does half a program stay. Whatever else lies in the folder, which may be an app's, is left alone."""
    cache = tmp_path / "cache"
    cache.mkdir()
    magic = b"autotune-opencl-1 "
    files = {
        "0123456789abcdef.bin": magic + bytes(600_000),
        "fedcba9876543210.bin": magic + bytes(300_000),
        "00000000000000ff.bin": b"another's " + bytes(300_000),
        "others.bin": magic + bytes(300_000),
        "0123456789abcdef.bin.77.0": magic + bytes(1000),
    }
    for age, (name, content) in enumerate(files.items()):
        (cache / name).write_bytes(content)
        os.utime(cache / name, (1e9 + age, 1e9 + age))
    home = {"HOME": str(tmp_path)}
    words = (f"cache={cache}", "cache_bytes=800000")
    assert "compiled=1" in said(loader, library, NAME, *words, **home)
    left = {path.name for path in cache.iterdir()}
    (new,) = left - set(files)
    assert left == {new, "fedcba9876543210.bin", "00000000000000ff.bin", "others.bin"}
    used = (cache / new).stat().st_mtime
    os.utime(cache / new, (1e9, 1e9))
    assert "cached=1" in said(loader, library, NAME, *words, **home)
    assert (cache / new).stat().st_mtime >= used


def test_variants_are_chosen_by_gpu_driver_soc_and_cluster(
    library: Path, loader: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    table = copy_of(library, out)
    chosen = re.match(r"chosen (\S+) for (.*), (.*)$", said(loader, out, "-").strip())
    assert chosen and chosen[1] == "default"
    gpu, driver = chosen[2], chosen[3]
    default, adreno = table["variants"]

    def pick(*words: str, **matches: dict[str, str]) -> str:
        variants = [
            {
                **adreno,
                "name": name,
                "match": {"gpu": "", "driver": "", "soc": "", "cluster": "", **match},
            }
            for name, match in matches.items()
        ]
        rewrite(out, {**table, "variants": [default, *variants]})
        return said(loader, out, "-", *words).split()[1]

    assert pick(a={"gpu": "another"}) == "default"
    assert pick(a={"gpu": gpu.upper()}) == "a"
    assert pick(a={"gpu": gpu}, b={"gpu": gpu, "driver": driver}) == "b"
    assert pick(a={"gpu": gpu, "driver": "0"}, b={"gpu": gpu, "driver": "0"}) == "a"
    assert pick("soc=SM8150", a={"gpu": gpu, "soc": "SM8350"}) == "default"
    assert pick("soc=sm8150", a={"gpu": gpu}, b={"gpu": gpu, "soc": "SM8150"}) == "b"
    assert pick("soc=SM8150", a={"soc": "SM8150"}) == "a"
    assert pick("cluster=big", a={"gpu": gpu, "cluster": "little"}) == "default"
    assert pick("cluster=big", a={"gpu": gpu}, b={"gpu": gpu, "cluster": "big"}) == "b"
    assert pick("variant=A", a={}) == "a"


def test_limits_are_checked_before_anything_is_built(
    library: Path, loader: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    table = copy_of(library, out)
    limits = table["variants"][1]["kernels"][NAME]["limits"]
    for key, value, message in (
        ("work_group_size", 10**6, "needs 1000000 work items a group, the device has"),
        ("work_item_sizes", [1, 1, 10**7], "needs 10000000 work items in dimension 2"),
        ("local_memory_bytes", 1 << 40, "bytes of local memory"),
        ("buffer_bytes", 1 << 60, "bytes in one buffer"),
        ("extensions", ["cl_no_such_thing"], "needs cl_no_such_thing"),
    ):
        before, limits[key] = limits[key], value
        rewrite(out, table)
        refused = said(loader, out, NAME, "variant=adreno")
        assert refused.startswith("error 4 kernel"), refused
        assert message in refused
        table["variants"][1]["match"]["soc"] = "chip"
        rewrite(out, table)
        # The safe variant takes its place where it was not asked for by name.
        assert said(loader, out, NAME, "soc=chip").startswith("ok default")
        limits[key] = before


def test_what_is_wrong_is_said(library: Path, loader: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    table = copy_of(library, out)
    for words, message in (
        (("no_such_kernel",), "error 3 there is no kernel no_such_kernel"),
        ((NAME, "variant=nobody"), "error 3 there is no variant nobody"),
        ((NAME, "operands=2"), f"error 6 kernel {NAME} takes 3 operands, and was given 2"),
        (
            (NAME, "bytes=16"),
            f"error 6 operand x of kernel {NAME} needs 5120 bytes, and its buffer has 16",
        ),
        (
            (NAME, "host=4"),
            f"error 6 operand x of kernel {NAME} lies in host memory that does not begin at a multiple of 64",
        ),
        ((NAME, "host=0"), "ok"),
        ((NAME, "order=any"), "error 6 the queue runs out of order"),
    ):
        assert said(loader, out, *words).startswith(message), words
    absent = said(loader, out, NAME, AUTOTUNE_OPENCL_LIBRARY="/none.so")
    assert absent.startswith("error 2 no OpenCL library (tried /none.so)")
    busy = said(loader, out, NAME, AUTOTUNE_OPENCL_LIBRARY=str(driver(tmp_path)), BUSY="1")
    assert re.match(r"error 7 .*: CL_OUT_OF_RESOURCES: .*tune and export for this device", busy)
    source = out / table["variants"][0]["kernels"][NAME]["source"]
    text = source.read_text()
    source.write_text(text.replace("__kernel", "__colonel"))
    assert re.match(
        r"error 5 kernel \S+ of variant default does not compile for ", said(loader, out, NAME)
    )
    source.unlink()
    assert said(loader, out, NAME).startswith("error 1 cannot read ")
    for damaged, message in (
        ("{", "is no whole JSON text"),
        ("[" * 1000, "is no whole JSON text"),
        ('{"schema_version": 2}', "has schema version 2, and this loader reads 1"),
        ('{"schema_version": 1}', "has no kernels"),
    ):
        (out / "launch_table.json").write_text(damaged)
        assert message in said(loader, out, NAME)
    table["variants"][0]["kernels"][NAME]["launches"][0]["arguments"][0] = {"operand": 99}
    rewrite(out, table)
    assert "is damaged" in said(loader, out, NAME)


def test_a_phone_s_app_finds_the_lines_that_open_the_vendor_s_opencl(library: Path) -> None:
    import xml.etree.ElementTree as ElementTree

    root = ElementTree.parse(library / "android" / "AndroidManifest.xml").getroot()
    space = "{http://schemas.android.com/apk/res/android}"
    named = [one.attrib[f"{space}name"] for one in root.iter("uses-native-library")]
    assert "libOpenCL.so" in named
    assert all(
        one.attrib[f"{space}required"] == "false" for one in root.iter("uses-native-library")
    )


def test_a_run_on_a_real_device_is_matched_by_its_name_and_driver(
    run: Path, tmp_path: Path, loader: Path
) -> None:
    """The stand-in itself, as if it were the target's real device."""
    copy = tmp_path / "run"
    subprocess.run(["cp", "-r", run, copy], check=True)
    result = json.loads((copy / "result.json").read_text())
    result["stand_in"] = result["device"]["stand_in"] = False
    (copy / "result.json").write_text(json.dumps(result))
    out = tmp_path / "out"
    done = autotune(
        "export", copy, "--format", "opencl", "--name", "kernels", "--out", out, "--json"
    )
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    found = opencl_sidecar.devices()[0]
    assert manifest["variants"][1]["match"]["gpu"] == found.name
    assert manifest["variants"][1]["match"]["driver"] == found.driver_version
    assert said(loader, out, NAME).startswith("ok adreno")


def test_an_operator_with_temporaries_runs_again_and_again_on_several_queues(
    tmp_path: Path, loader: Path
) -> None:
    kernel = parse_kernel("batch_norm:n=2,c=8,s=49,channels_last=1", "weight_grad")
    exported([untuned_variant("opencl", [kernel])], tmp_path / "out", "opencl")
    for words in (("times=1",), ("times=20",), ("times=20", "threads=3")):
        said_it = said(loader, tmp_path / "out", kernel.name, *words).strip()
        assert said_it == "ok default compiled=1 cached=0"
