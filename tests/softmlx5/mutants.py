#!/usr/bin/env python3
"""Plants one fault after another in the direct mlx5 path and runs the test that must notice it.

    mutants.py BUILD [NAME...]      BUILD is a built tree, of whose programs one file is compiled anew;
                                    NAME is a rule or a program (unit, ring, trap, body); none: all

Each row names the rule that it breaks, the file, what is replaced by what, and the test. A fault that its
test does not notice, a text that is not there any more, or a test that fails without a fault ends it with 1.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PATH = pathlib.Path("fabric/mlx5")

# program: its source, and its environment
PROGRAMS = {
    "unit": ("tests/fabric/mlx5_unit_test.cpp", {}),
    "ring": ("tests/softmlx5/ring_test.cpp", {"SOFTMLX5_MODE": "manual"}),
    "trap": ("tests/softmlx5/ring_test.cpp", {"SOFTMLX5_MODE": "trap"}),
    "body": ("tests/softmlx5/body_test.cpp", {"SOFTMLX5_MODE": "poll"}),
}
SAME = "random_requests_are_written_as_libmlx5_writes_them"
ORDER = "post_writes_the_record_and_the_register_between_its_barriers"
POLL = "poll_reads_the_owner_before_its_barrier_and_publishes_behind_one"
DECODE = "decoder_takes_successes_of_plain_requests_only"
SEND, RING, RINGS, TAKE, QUEUE, PAIR = ("send_queue.hpp", "completion_ring.hpp", "completion_ring.cpp",
                                        "takeover.cpp", "completion_queue.cpp", "queue_pair.cpp")
RECORD = """        Platform::store_record(memory_.record + layout::send_record_word,
                               big_endian(std::uint32_t{next_}));
"""

# rule, file, what is there, what takes its place, program, case
MUTANTS = [
    ("the record is written", SEND, RECORD, "", "unit", ORDER),
    ("the record is written before the register", SEND, RECORD + "        Platform::before_register();\n",
     "        Platform::before_register();\n" + RECORD, "unit", ORDER),
    ("an index is not masked", SEND, "std::uint32_t{next_} << 8 | operation",
     "std::uint32_t{next_ & (memory_.blocks - 1)} << 8 | operation", "ring", SAME),
    ("a piece of no bytes is left out", SEND, "if (p.bytes == 0) continue;", "", "ring", SAME),
    ("a piece of no bytes is not counted", SEND, "all.count += p.bytes > 0 ? 1 : 0;", "all.count += 1;", "ring", SAME),
    ("inline bytes go on at the start of the ring", SEND,
     "std::memcpy(memory_.ring, bytes.data() + first, bytes.size() - first);", "", "ring", SAME),
    ("pieces go on at the start of the ring", SEND, "if (at == end_) at = memory_.ring;",
     "if (at == end_) at -= layout::unit;", "ring", SAME),
    ("the owner bit changes each lap", RING, "const bool lap = (next_ & memory_.entries) != 0;",
     "const bool lap = false;", "unit", POLL),
    ("halves of the register alternate", SEND, "half_ ^= memory_.half_bytes;", "", "trap", SAME),
    ("the producer counts blocks", SEND, "static_cast<std::uint16_t>(next_ + blocks)",
     "static_cast<std::uint16_t>(next_ + 1)", "ring", SAME),
    ("a BlueFlame copy goes on at the start of the ring", SEND, "if (from == end_) from = memory_.ring;", "",
     "trap", SAME),
    ("a BlueFlame copy ascends", SEND, "Platform::store_register(to + i, load64(from + i));",
     "Platform::store_register(to + 56 - i, load64(from + 56 - i));", "trap", SAME),
    ("a batch has one doorbell", SEND, "if (added_ == 1 && latest_units_ > 1", "if (latest_units_ > 1", "unit", ORDER),
    ("a BlueFlame copy fits its half", SEND, "latest_units_ * layout::unit <= memory_.half_bytes", "true",
     "unit", "post_without_blueflame_stores_once"),
    ("the consumer index is published", RING,
     """        Platform::store_record(memory_.record + layout::consumer_record_word,
                               big_endian(next_ & layout::counter_mask));
""", "", "unit", POLL),
    ("barrier A", SEND, "        Platform::before_record();\n", "", "unit", ORDER),
    ("barrier B", SEND, "        Platform::before_register();\n", "", "unit", ORDER),
    ("barrier C", SEND, "        Platform::after_register();\n", "", "unit", ORDER),
    ("barrier D", RING, "        Platform::after_owner();\n", "", "unit", POLL),
    ("barrier E", RING, "        Platform::before_consumer();\n", "", "unit", POLL),
    ("a length has six bits", SEND, "units > layout::max_units || ", "", "unit",
     "request_that_does_not_fit_changes_nothing"),
    ("a full ring takes no more", SEND, " || blocks > free_blocks()", "", "unit",
     "request_that_does_not_fit_changes_nothing"),
    ("a counter names a request that is out", SEND, "offset >= static_cast<std::uint16_t>(rung_ - oldest_) || ", "",
     "unit", "counter_that_names_no_request_completes_nothing"),
    ("a counter names the first block of a request", SEND, " || s.index != counter", "", "unit",
     "counter_that_names_no_request_completes_nothing"),
    ("a reset starts anew", SEND, "next_ = rung_ = oldest_ = 0;", "rung_ = oldest_ = next_;", "ring",
     "queue_pair_that_was_reset_is_used_again_from_the_start"),
    ("a signalled request has a completion", SEND, "modes.signalled ? layout::mode_signalled : 0U", "0U", "ring", SAME),
    ("a fence is asked for", SEND, "modes.fence ? layout::mode_fence : 0U", "0U", "ring", SAME),
    ("an entry that was never written is none", RING, "owner >> 4 == layout::code_invalid || ", "", "unit",
     "entry_that_was_never_written_is_none_whatever_its_owner_bit"),
    ("an event has a number", RING, "++event_;", "", "unit", POLL),
    ("a request for an event is in the record too", RING,
     "        Platform::store_record(memory_.record + layout::arm_record_word, big_endian(request));\n", "", "unit", POLL),
    ("an answer inside the entry is an error", RINGS, "if ((last & answer_inside) != 0) return false;", "", "unit", DECODE),
    ("an unknown code is an error", RINGS, "if (code != layout::code_request_error) return false;", "", "unit", DECODE),
    ("a queue pair's number has 24 bits", RINGS, "word & 0xffffff", "word", "ring", SAME),
    ("each syndrome has its status", RINGS, "case 0x13:", "case 0x33:", "body",
     "each_syndrome_has_the_status_that_ibv_poll_cq_gives_it"),
    ("the vendor's error is told", RINGS,
     "    out.vendor = std::to_integer<std::uint8_t>(from[layout::entry_vendor]);\n", "", "body",
     "each_syndrome_has_the_status_that_ibv_poll_cq_gives_it"),
    ("answers never go into completions", TAKE, "MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;",
     "MLX5DV_QP_CREATE_ALLOW_SCATTER_TO_CQE;", "body", "read_of_each_size_gives_the_same_bytes_and_completion_by_both_paths"),
    ("no checksum is expected", TAKE, "sign != nullptr)", "sign == nullptr)", "ring",
     "queue_pair_that_would_expect_checksums_is_not_made_for_the_direct_path"),
    ("a READ brings what it asked for", QUEUE,
     "out.kind == operation::read && entry.bytes != work->ring.read_bytes(entry.counter)", "false", "body",
     "read_that_succeeds_with_fewer_bytes_than_asked_for_has_failed"),
    ("a destroyed queue pair completes nothing", QUEUE,
     "auto drained = drain(~std::size_t{0}, [&](const completion& c) { ready_.push_back(c); });",
     "result<void> drained;", "body",
     "completion_of_a_destroyed_queue_pair_is_not_that_of_the_next_with_its_number"),
    ("the other part is polled too", QUEUE, "filled < out.size() && other_used_.load(std::memory_order_relaxed)",
     "false", "body", "receives_complete_in_the_same_queue_as_direct_sends"),
    ("the direct part is armed", QUEUE, "    ring_->arm();\n", "", "body",
     "armed_queue_tells_of_new_completions_also_with_some_not_polled"),
    ("room is counted in requests", PAIR, "out + count > options_.send_requests", "false", "body",
     "room_is_counted_in_requests_and_a_batch_beyond_it_posts_none"),
]


def commands(build):
    """How each source file is compiled, and how each program is linked."""
    compiled = {entry["file"]: entry for entry in json.loads((build / "compile_commands.json").read_text())}
    links = {}
    for source in {source for source, _ in PROGRAMS.values()}:
        name = {"mlx5_unit_test": "tests/fabric/mlx5_unit_test"}.get(
            pathlib.Path(source).stem, "tests/softmlx5/softmlx5_" + pathlib.Path(source).stem)
        said = subprocess.run(["ninja", "-C", build, "-t", "commands", name], check=True, capture_output=True, text=True)
        links[source] = (name, said.stdout.strip().splitlines()[-1])
    return compiled, links


def compile_file(entry, file, out, first_include):
    """As it is compiled, but fast, and with `first_include` before all other directories."""
    words = shlex.split(entry["command"])
    words = [w for w in words if w not in ("-O2", "-g", "-Werror")]
    words[words.index("-o") + 1] = str(out)
    words[words.index("-c") + 1] = str(file)
    at = next(i for i, w in enumerate(words) if w.startswith("-I"))
    words[at:at] = ["-O0", "-I" + str(first_include)]
    subprocess.run(words, check=True, cwd=entry["directory"], capture_output=True, text=True, timeout=300)


def run(program, case, environment):
    """Whether that case passes. One that crashes or does not end has not."""
    try:
        ran = subprocess.run([program, f"--run_test={case}"], capture_output=True, timeout=40, check=False,
                             env=dict(os.environ, MLX5_DEBUG_FILE="/dev/null", BOOST_TEST_CATCH_SYSTEM_ERRORS="no",
                                      **environment))
    except subprocess.TimeoutExpired:
        return False
    return ran.returncode == 0


class Gate:
    def __init__(self, build):
        self.build = build
        self.compiled, self.links = commands(build)
        self.sound = set()

    def build_with(self, place, name, text, source):
        """The program of that source with `text` in place of one file, in a directory of its own."""
        (place / PATH).mkdir(parents=True)
        for file in (ROOT / "src" / PATH).glob("*.hpp"):
            (place / PATH / file.name).write_text(file.read_text())
        planted = place / PATH / name
        planted.write_text(text)
        # A header's fault is in the test itself; a source file's comes before the library's.
        header = name.endswith(".hpp")
        of = ROOT / (source if header else f"src/{PATH}/{name}")
        made = place / "planted.o"
        compile_file(self.compiled[str(of)], of if header else planted, made, place)
        words = [w for w in shlex.split(self.links[source][1]) if w not in (":", "&&")]
        words[words.index("-o") + 1] = str(place / "program")
        of_test = next(i for i, w in enumerate(words) if w.endswith(pathlib.Path(source).name + ".o"))
        words[of_test:of_test + (1 if header else 0)] = [str(made)]
        subprocess.run(words, check=True, cwd=self.build, capture_output=True, text=True, timeout=100)
        return place / "program"

    def passes(self, name, text, program, case):
        source, environment = PROGRAMS[program]
        with tempfile.TemporaryDirectory() as directory:
            return run(self.build_with(pathlib.Path(directory), name, text, source), case, environment)

    def judge(self, mutant):
        """None where the fault was noticed, else what is wrong."""
        _, name, old, new, program, case = mutant
        text = (ROOT / "src" / PATH / name).read_text()
        if text.count(old) != 1:
            return f"{text.count(old)} times in {name}: {old!r}"
        try:
            # Built the same way without a fault, once for each test and file.
            if (name, program, case) not in self.sound:
                if not self.passes(name, text, program, case):
                    return f"{case} fails without a fault"
                self.sound.add((name, program, case))
            return f"{case} does not notice it" if self.passes(name, text.replace(old, new), program, case) else None
        except subprocess.CalledProcessError as failed:
            return f"does not build:\n{failed.stderr}"


def main():
    gate = Gate(pathlib.Path(sys.argv[1]).resolve())
    wanted = sys.argv[2:]
    bad = 0
    ran = 0
    for mutant in MUTANTS:
        if wanted and not {mutant[0], mutant[4]} & set(wanted):
            continue
        ran += 1
        wrong = gate.judge(mutant)
        print(f"{'killed' if wrong is None else 'ALIVE'}: {mutant[0]}" + (f": {wrong}" if wrong else ""), flush=True)
        bad += wrong is not None
    print(f"{ran - bad} of {ran} faults noticed")
    return 1 if bad or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
