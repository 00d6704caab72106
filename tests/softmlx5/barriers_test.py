"""The fences that a compiler makes of the direct path's barriers, for each processor it knows.

That they are called where they belong mlx5_unit_test shows, with a recorder in their place; here is
what each of them is. SOURCE names the top of the sources, CLANG a clang++, which knows all targets.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SOURCE"])
FENCE = re.compile(r"^\s+([slm]fence|d[ms]b\s+\w+|isb)\b", re.MULTILINE)
# Hooks first, then what is made of them.
EXPECTED = {
    # Ordinary stores and loads are seen in order; only write-combining memory needs a fence.
    "x86_64": {"before_record": [], "before_register": ["sfence"], "after_register": ["sfence"],
               "after_owner": [], "before_consumer": [],
               "post": ["sfence"] * 2, "poll": [], "publish": [], "arm": ["sfence"] * 2},
    "aarch64": {"before_record": ["dmb oshst"], "before_register": ["dmb oshst"], "after_register": ["dmb oshst"],
                "after_owner": ["dmb oshld"], "before_consumer": ["dmb ish"],
                "post": ["dmb oshst"] * 3, "poll": ["dmb oshld"], "publish": ["dmb ish"],
                "arm": ["dmb oshst"] * 2},
}


def assembly(target, directory):
    # The headers of the C library are this machine's. They ask which machine that is for two things
    # only, which are answered here for another of 64 bits.
    stand_in = pathlib.Path(directory)
    for name, text in {"gnu/stubs-32.h": "", "bits/wordsize.h":
                       "#define __WORDSIZE 64\n#define __WORDSIZE_TIME64_COMPAT32 0\n"}.items():
        (stand_in / name).parent.mkdir(exist_ok=True)
        (stand_in / name).write_text(text)
    version = subprocess.run(["g++", "-dumpversion"], check=True, capture_output=True, text=True).stdout.strip()
    here = subprocess.run(["g++", "-print-multiarch"], check=True, capture_output=True, text=True).stdout.strip()
    ran = subprocess.run(
        [os.environ["CLANG"], "-std=c++20", "-O2", f"--target={target}-linux-gnu", "-S", "-o", "-",
         "-isystem", stand_in, "-isystem", f"/usr/include/{here}/c++/{version}", "-isystem", f"/usr/include/c++/{version}",
         "-isystem", f"/usr/include/{here}", "-I", SOURCE / "src", "-I", SOURCE / "include",
         SOURCE / "tests/softmlx5/barriers.cpp"],
        check=False, capture_output=True, text=True, timeout=120)
    if ran.returncode != 0:
        raise AssertionError(ran.stderr)
    return ran.stdout


def fences(text, function):
    body = re.search(rf"^{function}:.*?^\.Lfunc_end", text, re.MULTILINE | re.DOTALL)
    if body is None:
        raise AssertionError(f"no function {function}")
    return [" ".join(found.split()) for found in FENCE.findall(body[0])]


class Barriers(unittest.TestCase):
    def test_each_hook_is_the_fence_that_its_processor_needs(self):
        for target, functions in EXPECTED.items():
            with tempfile.TemporaryDirectory() as directory:
                text = assembly(target, directory)
            for function, wanted in functions.items():
                with self.subTest(target=target, function=function):
                    self.assertEqual(fences(text, function), wanted)


if __name__ == "__main__":
    unittest.main()
