"""rvget get with too few file descriptors: whatever cannot be opened is a plain error, and nothing is left behind."""

import json
import subprocess

from support import COMMAND, LIMIT, Case, main

# 0, 1, 2 and the one that the loader needs are open before main() runs.
LEAST = 4
ENOUGH = 32


class Descriptors(Case):
    def test_every_number_of_descriptors_works_or_is_an_error_that_says_so(self):
        _, url = self.serve_url(self.file("in", b"abc"))
        ended = []
        for limit in range(LEAST, ENOUGH):
            finished = subprocess.run(["sh", "-c", f'ulimit -n {limit}; exec "$0" "$@"', COMMAND, "get", url, "-o",
                                       self.path("out"), "--json"], capture_output=True, timeout=LIMIT, check=False)
            with self.subTest(limit=limit):
                said = json.loads(finished.stdout)
                self.assertEqual(said["exit"], finished.returncode)
                ended.append(finished.returncode)
                if finished.returncode == 0:
                    self.assertEqual(self.content(self.path("out")), b"abc")
                    continue
                self.assertEqual(said["schema"], "rvget.error/1")
                self.assertIn(finished.returncode, (1, 6, 7))
                self.assertIn("Too many open files", said["message"])
                self.assertIn("ulimit", said["message"])
                self.assertNotIn("report it", said["message"])
                self.assertEqual(self.names(), ["in"])
        # Neither end of the range is empty, and more descriptors never make it worse.
        self.assertNotEqual(ended[0], 0)
        self.assertEqual(ended[-1], 0)
        self.assertEqual([status == 0 for status in ended], sorted(status == 0 for status in ended))


if __name__ == "__main__":
    main()
