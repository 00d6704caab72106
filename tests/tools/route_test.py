"""rvget route on a machine without RDMA: the kernel's route, the refusal and its next step, and clear errors."""

import json

from support import Case, main, run


class Route(Case):
    def test_route_without_rdma_names_the_way_and_the_reason(self):
        finished = run("route", "127.0.0.1", "--json")
        shown = json.loads(finished.stdout)
        self.assertEqual((shown["schema"], shown["exit"], finished.returncode), ("rvget.route/1", 2, 2))
        self.assertEqual((shown["peer"], shown["source"], shown["netdev"], shown["local"]),
                         ("127.0.0.1", "127.0.0.1", "lo", True))
        self.assertEqual(shown["candidates"], [])
        self.assertIn("rdma link add", shown["refusal"])

    def test_route_as_text_says_the_same(self):
        finished = run("route", "127.0.0.1")
        self.assertEqual(finished.returncode, 2)
        self.assertTrue(finished.stdout.startswith(b"127.0.0.1 is this machine, from 127.0.0.1 by lo"), finished.stdout)
        self.assertIn(b"no RDMA: ", finished.stdout)

    def test_peer_that_does_not_resolve_is_not_known(self):
        finished = run("route", "no.such.host.invalid", "--json")
        said = json.loads(finished.stdout)
        self.assertEqual((said["schema"], said["exit"], finished.returncode), ("rvget.error/1", 3, 3))
        self.assertIn("no.such.host.invalid", said["message"])

    def test_mapped_address_goes_by_ipv4(self):
        shown = json.loads(run("route", "::ffff:127.0.0.1", "--json").stdout)
        self.assertEqual((shown["source"], shown["netdev"], shown["local"]), ("127.0.0.1", "lo", True))

    def test_link_local_address_without_a_netdev_asks_for_one(self):
        finished = run("route", "fe80::1")
        self.assertEqual(finished.returncode, 3)
        self.assertIn(b"fe80::1%NETDEV", finished.stderr)

    def test_unspecified_address_is_no_peer(self):
        for peer in ("::", "0.0.0.0", "::ffff:0.0.0.0"):
            with self.subTest(peer=peer):
                finished = run("route", peer)
                self.assertEqual((finished.returncode, finished.stdout), (3, b""))
                self.assertIn(b"is no peer", finished.stderr)

    def test_wrong_use_is_a_usage_error(self):
        for wrong in (["127.0.0.1", "--gid-index", "-1"], ["127.0.0.1", "--gid-index", "1K"], [], ["a", "b"], ["127.0.0.1", "--gid", "x"], ["127.0.0.1", "--gid-index", "x"]):
            with self.subTest(wrong=wrong):
                self.assertEqual(run("route", *wrong).returncode, 64)


if __name__ == "__main__":
    main()
