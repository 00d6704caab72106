"""rvget itself: help, version, and what is no command."""

import re
import subprocess

from support import COMMAND, IO, OK, USAGE, Case, main, run


class Command(Case):
    def test_help_is_asked_for_lists_the_commands(self):
        for spelling in ("--help", "-h", "help"):
            finished = run(spelling)
            self.assertStatus(finished, OK)
            self.assertRegex(finished.stdout, rb"(?m)^  serve ")
            self.assertRegex(finished.stdout, rb"(?m)^  get ")
            self.assertEqual(finished.stderr, b"")

    def test_subcommand_help_names_every_exit_status(self):
        for name in ("serve", "get"):
            finished = run(name, "--help")
            self.assertStatus(finished, OK)
            self.assertTrue(finished.stdout.startswith(b"usage: rvget " + name.encode()))
            self.assertEqual(re.findall(rb"(?m)^  (\d) ", finished.stdout),
                             [str(status).encode() for status in range(10)])

    def test_version_is_one_line(self):
        finished = run("--version")
        self.assertStatus(finished, OK)
        self.assertRegex(finished.stdout, rb"\Arvget \d+\.\d+\.\d+\n\Z")

    def test_unknown_command_close_to_one_suggests_it(self):
        self.assertOneError(run("srve"), USAGE, "'srve'", "did you mean 'serve'?")
        self.assertOneError(run("gte"), USAGE, "did you mean 'get'?")

    def test_unknown_command_far_from_all_points_to_help(self):
        self.assertOneError(run("frobnicate"), USAGE, "frobnicate", "rvget --help")

    def test_no_command_is_an_error(self):
        self.assertOneError(run(), USAGE, "rvget --help")

    def test_abbreviated_option_is_refused(self):
        self.assertOneError(run("serve", "--lis", "127.0.0.1", "x"), USAGE, "--lis", "rvget serve --help")

    def test_unknown_log_level_is_refused(self):
        self.assertOneError(run("serve", "--log-level", "loud", "x"), USAGE, "loud")

    def test_help_on_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            finished = run("--help", stdout=full)
            self.assertEqual(finished.returncode, IO)
            self.assertIn(b"standard output", finished.stderr)

    def test_closed_standard_streams_do_no_harm(self):
        path = self.file("data", b"x" * 100)
        # Without standard input, output and error: no file must take their numbers.
        status = subprocess.run(["/bin/sh", "-c", '"$0" serve "$1/missing" <&- >&- 2>&-', COMMAND, path],
                                check=False, timeout=60).returncode
        self.assertEqual(status, IO)


if __name__ == "__main__":
    main()
