"""Ratios of alternating measurements, and what the scripts beside this file print of them."""
import json
import os
import pathlib
import platform
import random
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = ROOT / "build/release"


def build(*targets):
    subprocess.run(["cmake", "--preset", "release"], cwd=ROOT, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", *targets], cwd=ROOT, check=True,
                   stdout=sys.stderr)


def machine():
    """What the figures were taken on."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = re.search(r"^model name\s*:\s*(.*)$", info.read(), re.M)
    return dict(machine=dict(cpu=model[1] if model else platform.machine(), cpus=os.cpu_count(),
                             load=os.getloadavg()[0], kernel=platform.release()),
                commit=subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True,
                                      text=True, check=False).stdout.strip())


def interval(values, rounds=2000):
    """The median's 95 % interval by resampling, with a fixed seed."""
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(rounds))
    return medians[int(rounds * 0.025)], medians[int(rounds * 0.975)]


def judged(name, ratios, at_most=None, at_least=None, **more):
    """{name, ratio, low, high, target, met, ...}: missed only if the whole interval is beyond the target."""
    low, high = interval(ratios)
    target = at_most if at_most is not None else at_least
    met = None if target is None else low <= target if at_most is not None else high >= target
    return dict(name=name, ratio=round(statistics.median(ratios), 3), low=round(low, 3), high=round(high, 3),
                target=target, met=met, pairs=len(ratios), **more)


def tell(line):
    print(json.dumps(line), flush=True)
