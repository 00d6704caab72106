// What of the verbs body can be tested without a device.
#include <boost/test/unit_test.hpp>

#include <cerrno>
#include <filesystem>
#include <fstream>

#include "fabric/quirks.hpp"
#include "fabric/verbs/inventory.hpp"
#include "fabric/verbs/text.hpp"
#include "fabric/verbs/work_queue.hpp"

namespace fs = std::filesystem;
using namespace rvget;
using namespace rvget::fabric;
using verbs::work_queue;

namespace {

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

/// A made-up /sys that goes away with the test.
struct sysfs {
    sysfs() {
        std::string name = (fs::temp_directory_path() / "rvget-sysfs-XXXXXX").string();
        BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
        root = name;
    }
    ~sysfs() {
        std::error_code ignored;
        fs::remove_all(root, ignored);
    }
    void add(const std::string& device, const std::string& driver, bool parent) const {
        const auto entry = root / "class/infiniband" / device;
        fs::create_directories(entry);
        if (!driver.empty()) {
            fs::create_directories(entry / "device");
            fs::create_symlink("../../../../bus/pci/drivers/" + driver, entry / "device/driver");
        }
        if (parent) std::ofstream(entry / "parent") << "eth0\n";
    }
    fs::path root;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(verbs_provider)

BOOST_AUTO_TEST_CASE(list_without_rdma_in_the_kernel_is_none_with_the_next_step) {
    const auto provider = make_verbs_provider();
    BOOST_TEST(provider->name() == "verbs");
    const auto listed = provider->list();
    if (fs::exists("/sys/class/infiniband_verbs")) {  // a machine that has it
        BOOST_TEST(listed.has_value());
        return;
    }
    BOOST_REQUIRE(!listed);
    BOOST_TEST(listed.error().code == make_error_code(device_errc::none));
    BOOST_TEST(contains(listed.error().detail, "no RDMA support"));
    BOOST_TEST(contains(listed.error().detail, "ENOSYS"));
    BOOST_TEST(contains(listed.error().detail, "modprobe ib_uverbs"));
    const auto opened = provider->open("rxe0");
    BOOST_REQUIRE(!opened);
    BOOST_TEST(opened.error().code == make_error_code(device_errc::none));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_driver)

BOOST_AUTO_TEST_CASE(driver_table_of_sysfs_trees_gives_the_names_of_rdma_core) {
    const sysfs sys;
    struct row {
        std::string device, link;
        bool parent, iwarp;
        std::string driver;
    };
    for (const auto& r : {
             row{"mlx5_0", "mlx5_core", false, false, "mlx5"},
             row{"mlx5_9", "mlx5_core.sf", false, false, "mlx5"},
             row{"mlx4_0", "mlx4_core", false, false, "mlx4"},
             row{"bnxt_re0", "bnxt_en", false, false, "bnxt_re"},
             row{"efa_0", "efa", false, false, "efa"},
             row{"rxe0", "", true, false, "rxe"},  // Linux 6.1
             row{"rxe1", "", false, false, "rxe"},
             row{"rxe2", "mlx5_core", true, false, "rxe"},  // older: over a mlx5 netdev
             row{"siw0", "", false, true, "siw"},
         }) {
        BOOST_TEST_CONTEXT(r.device) {
            sys.add(r.device, r.link, r.parent);
            BOOST_TEST(verbs::driver_of(sys.root, r.device, r.iwarp) == r.driver);
        }
    }
    BOOST_TEST(verbs::driver_of(sys.root, "absent", false) == "");
}

BOOST_AUTO_TEST_CASE(quirks_of_a_device_outside_the_table_are_none) {
    route::device_facts device;
    device.driver = "mlx5";
    BOOST_TEST(!quirks_of(device).success_needs_state_query);
    BOOST_TEST(!quirks_of(device).destroy_blocks_on_bound_window);
    BOOST_TEST(!quirks_of(device).retry_seven_is_for_ever);
    device.driver = "rxe";
    BOOST_TEST(quirks_of(device).success_needs_state_query);
    BOOST_TEST(!quirks_of(device).drains_by_destruction);
}

BOOST_AUTO_TEST_CASE(quirks_of_any_iwarp_device_end_a_drain_with_the_queue_pair) {
    route::device_facts device;
    device.driver = "cxgb4";
    device.ports = {{.link_layer = route::link_layer::ethernet}};
    BOOST_TEST(!quirks_of(device).drains_by_destruction);
    device.ports = {{.link_layer = route::link_layer::iwarp}};
    BOOST_TEST(quirks_of(device).drains_by_destruction);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_texts)

BOOST_AUTO_TEST_CASE(status_texts_differ_and_none_is_empty) {
    std::vector<std::string_view> seen;
    for (int i = 0; i <= static_cast<int>(completion_status::other); ++i) {
        const auto text = to_string(static_cast<completion_status>(i));
        BOOST_TEST(!text.empty());
        BOOST_TEST((std::find(seen.begin(), seen.end(), text) == seen.end()));
        seen.push_back(text);
    }
    BOOST_TEST(to_string(completion_status::retry_exceeded) == "transport retry counter exceeded");
}

BOOST_AUTO_TEST_CASE(transition_text_of_each_errno_names_its_cause) {
    verbs::transition t{.device = "mlx5_0",
                        .port = 1,
                        .target = "ready to receive",
                        .own = {},
                        .gid_index = 3,
                        .peer = {},
                        .path_mtu = 4096};
    t.own.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 5};
    t.peer.bytes = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 9};
    struct row {
        int error;
        std::string_view name, cause;
    };
    for (const auto& r :
         {row{EINVAL, "EINVAL", "path MTU 4096"}, row{ENODATA, "ENODATA", "is empty"},
          row{ETIMEDOUT, "ETIMEDOUT", "did not resolve"},
          row{ENETUNREACH, "ENETUNREACH", "unreachable"},
          row{EHOSTUNREACH, "EHOSTUNREACH", "unreachable"}, row{ENODEV, "ENODEV", "netdev"},
          row{EIO, "EIO", "refused"}}) {
        for (const int sign : {1, -1}) {  // verbs return errno with either
            const auto f = verbs::transition_failure(t, sign * r.error);
            BOOST_TEST(f.code == make_error_code(device_errc::transition_failed));
            BOOST_TEST(contains(f.detail, "mlx5_0 port 1"));
            BOOST_TEST(contains(f.detail, r.name));
            BOOST_TEST(contains(f.detail, r.cause));
            BOOST_TEST(contains(f.detail, "own GID 10.0.0.5 at index 3, peer GID 10.0.0.9"));
            BOOST_TEST(contains(f.detail, "`rvget check HOST`"));
        }
    }
    t.peer.bytes = {0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
    BOOST_TEST(contains(verbs::transition_failure(t, EINVAL).detail, "address families"));
}

BOOST_AUTO_TEST_CASE(open_text_of_enoent_says_missing_or_not_permitted) {
    const auto f = verbs::open_failure("mlx5_0", ENOENT);
    BOOST_TEST(f.code == make_error_code(device_errc::open_failed));
    BOOST_TEST(contains(f.detail, "mlx5_0"));
    BOOST_TEST(contains(f.detail, "missing or not permitted"));
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(verbs_work_queue)

const auto unexpected = [](const work_queue::entry& e) { BOOST_ERROR("phantom " << e.id); };

BOOST_AUTO_TEST_CASE(work_queue_completion_finds_its_request_and_ends_those_before_it) {
    work_queue queue(6, 77, false);
    std::uint64_t last = 0;
    for (std::uint64_t id = 10; id < 15; ++id)
        last = queue.add({.id = id, .kind = operation::read});
    BOOST_TEST(queue.in_use() == 5u);
    const auto* done = queue.complete(last - 1, unexpected);
    BOOST_REQUIRE(done != nullptr);
    BOOST_TEST(done->id == 13u);
    BOOST_TEST(queue.in_use() == 1u);
    BOOST_TEST(queue.complete(last - 1, unexpected) == nullptr);  // once only
    BOOST_TEST(queue.complete(last, unexpected)->id == 14u);
    BOOST_TEST(queue.in_use() == 0u);
}

BOOST_AUTO_TEST_CASE(work_queue_ids_of_another_epoch_queue_or_time_are_foreign) {
    work_queue sends(4, 5, false), receives(4, 5, true), earlier(4, 4, false);
    const auto send = sends.add({.id = 1});
    const auto receive = receives.add({.id = 1});
    const auto old = earlier.add({.id = 1});
    BOOST_TEST(!work_queue::is_receive(send));
    BOOST_TEST(work_queue::is_receive(receive));
    BOOST_TEST(sends.complete(old, unexpected) == nullptr);
    BOOST_TEST(sends.complete(receive, unexpected) == nullptr);
    BOOST_TEST(sends.complete(send + 1, unexpected) == nullptr);
    BOOST_TEST(sends.complete(send, unexpected) != nullptr);
}

BOOST_AUTO_TEST_CASE(work_queue_reuses_its_entries_for_ever) {
    work_queue queue(3, 0x7fffffff, false);
    for (std::uint64_t id = 0; id < 100'000; id += 3) {
        queue.add({.id = id});
        queue.add({.id = id + 1});
        const auto last = queue.add({.id = id + 2});
        const auto* done = queue.complete(last, unexpected);
        BOOST_REQUIRE(done != nullptr);
        BOOST_REQUIRE_EQUAL(done->id, id + 2);
    }
    BOOST_TEST(queue.in_use() == 0u);
}

BOOST_AUTO_TEST_CASE(work_queue_phantoms_are_reported_with_the_release_and_not_before) {
    // Five posted, of which the device took two: the rest are phantoms until the marker behind them
    // proves that the two are done.
    work_queue queue(8, 1, false);
    const auto first = queue.add({.id = 1});
    for (std::uint64_t id = 2; id <= 5; ++id) queue.add({.id = id, .kind = operation::read});
    queue.haunt(3);
    const auto release = queue.add({.purpose = work_queue::purpose::release});
    BOOST_TEST(queue.complete(first, unexpected)->id == 1u);
    std::vector<std::uint64_t> reported;
    const auto* done =
        queue.complete(release, [&](const work_queue::entry& e) { reported.push_back(e.id); });
    BOOST_REQUIRE(done != nullptr);
    BOOST_CHECK(done->purpose == work_queue::purpose::release);
    BOOST_TEST((reported == std::vector<std::uint64_t>{3, 4, 5}));
    BOOST_TEST(queue.in_use() == 0u);
}

BOOST_AUTO_TEST_CASE(work_queue_completion_is_due_of_what_is_signalled_and_was_posted) {
    work_queue queue(8, 1, false);
    BOOST_TEST(!queue.completion_due());
    queue.add({.id = 1, .signalled = false});
    BOOST_TEST(!queue.completion_due());
    const auto second = queue.add({.id = 2});
    const auto third = queue.add({.id = 3});
    queue.add({.id = 4, .signalled = false});
    BOOST_TEST(queue.completion_due());
    queue.complete(second, unexpected);
    BOOST_TEST(queue.completion_due());  // the third's, behind which an unsignalled one waits
    queue.complete(third, unexpected);
    BOOST_TEST(!queue.completion_due());
    queue.add({.id = 5});
    queue.haunt(1);
    BOOST_TEST(!queue.completion_due());  // a phantom was not posted: the release reports it
    queue.add({.purpose = work_queue::purpose::release});
    BOOST_TEST(queue.completion_due());
}

BOOST_AUTO_TEST_CASE(work_queue_taken_back_requests_leave_no_trace) {
    work_queue queue(4, 1, false);
    const auto kept = queue.add({.id = 1});
    queue.add({.id = 2});
    queue.add({.id = 3});
    queue.take_back(2);
    BOOST_TEST(queue.in_use() == 1u);
    BOOST_TEST(queue.completion_due());
    const auto next = queue.add({.id = 4});
    BOOST_TEST(next == kept + 1);
    BOOST_TEST(queue.complete(next, unexpected)->id == 4u);
}

BOOST_AUTO_TEST_SUITE_END()
