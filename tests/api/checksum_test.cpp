// Gets whose bytes both ends have a CRC-32C of.

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "api/nodes.hpp"
#include "api/raw_peer.hpp"
#include "api/scripted_owner.hpp"
#include "base/crc32c.hpp"

namespace rvget::test {
namespace {

constexpr std::size_t medium = 100'000;

get_options checked(get_options o = {}) {
    o.checksum = true;
    return o;
}

BOOST_AUTO_TEST_SUITE(checksum)

BOOST_AUTO_TEST_CASE(get_of_every_size_and_kind_reports_the_checksum) {
    tcp_nodes n;
    for (const auto size : transfer_sizes) {
        const auto from = n.stage(size);
        const auto expected = crc32c(payload(size));
        const auto got = n.consumer.get(from, checked());
        BOOST_REQUIRE_MESSAGE(got, got.error().message());
        check_pattern(got->data.bytes());
        BOOST_TEST((got->report.crc32c == expected));
        const auto pinned = n.consumer.get_pinned(from, checked());
        BOOST_REQUIRE_MESSAGE(pinned, pinned.error().message());
        BOOST_TEST((pinned->report.crc32c == expected));
        std::vector<std::byte> into(size + 10);
        const auto filled = n.consumer.get_into(from, into, checked());
        BOOST_REQUIRE_MESSAGE(filled, filled.error().message());
        BOOST_TEST((filled->report.crc32c == expected));
    }
}

BOOST_AUTO_TEST_CASE(range_has_the_checksum_of_the_range) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    for (const auto& [offset, length] : {std::pair<std::size_t, std::size_t>{1, 10},
                                         {4097, 50'000},
                                         {99'000, 5000},
                                         {medium, 1}}) {
        get_options o;
        o.offset = offset;
        o.length = length;
        const auto got = n.consumer.get(from, checked(o));
        BOOST_REQUIRE_MESSAGE(got, got.error().message());
        const auto range = payload(medium).subspan(offset, std::min(length, medium - offset));
        BOOST_TEST((got->report.crc32c == crc32c(range)));
    }
}

BOOST_AUTO_TEST_CASE(checksum_not_asked_for_is_not_reported) {
    tcp_nodes n;
    BOOST_TEST(!n.consumer.get(n.stage(medium))->report.crc32c.has_value());
}

BOOST_AUTO_TEST_CASE(missing_slot_and_bad_range_are_the_same_errors_as_without) {
    tcp_nodes n;
    auto from = n.stage(medium);
    get_options o;
    o.offset = medium + 1;
    BOOST_TEST(n.consumer.get(from, checked(o)).error().code ==
               make_error_code(request_errc::out_of_range));
    ++from.handle.slot;
    BOOST_TEST(n.consumer.get(from, checked()).error().code ==
               make_error_code(request_errc::not_found));
}

BOOST_AUTO_TEST_CASE(many_at_once_are_all_answered) {
    tcp_nodes n;
    const auto from = n.stage(medium);
    answers done;
    constexpr std::size_t count = 200;
    for (std::size_t i = 0; i < count; ++i)
        n.consumer.async_get(from, checked(), [&done, i](error_code ec, get_result r) {
            if (!ec && !r.report.crc32c) ec = make_error_code(node_errc::internal);
            done.add(i, ec);
        });
    BOOST_REQUIRE(done.wait_for(count));
    for (std::size_t i = 0; i < count; ++i) BOOST_TEST(!done.code(i), done.code(i).message());
}

/// Serves `medium` bytes: inline, with the given checksum in its first `lies` answers and the right
/// one after them.
scripted_owner::script liar(int lies, std::optional<std::uint32_t> lie, std::atomic<int>& asked) {
    return [=, &asked](const raw_socket& s) {
        while (const auto m = s.read_frame()) {
            const auto* a = std::get_if<wire::acquire>(&m->frame.body);
            if (a == nullptr) continue;
            const bool wanted = a->checksum == wire::checksum::crc32c;
            wire::acquire_reply r;
            r.answer = wire::answer::inline_answer;
            r.why = reason::no_offer;
            r.slot_bytes = r.range_bytes = medium;
            if (wanted) r.crc32c = asked < lies ? lie : std::optional(crc32c(payload(medium)));
            ++asked;
            s.write(wire::frame{m->frame.id, r}, payload(medium));
        }
    };
}

BOOST_AUTO_TEST_CASE(one_mismatch_is_mended_by_a_second_try) {
    std::atomic<int> asked{0};
    const scripted_owner owner(liar(1, 0x12345678, asked));
    auto consumer = start_tcp_node();
    const auto got = consumer.get(owner.target(), checked());
    BOOST_TEST(consumer.metrics().find("rvget_checksum_mismatches_total 1\n") != std::string::npos);
    BOOST_TEST(consumer.shutdown(10s));
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    check_pattern(got->data.bytes());
    BOOST_TEST(asked == 2);
    BOOST_TEST(got->report.reason == reason::get_failed);
    BOOST_TEST(got->report.detail.find("0x12345678") != std::string::npos, got->report.detail);
}

BOOST_AUTO_TEST_CASE(second_mismatch_is_an_error_with_both_values) {
    std::atomic<int> asked{0};
    const scripted_owner owner(liar(100, 0x12345678, asked));
    auto consumer = start_tcp_node();
    const auto got = consumer.get(owner.target(), checked());
    BOOST_TEST(consumer.shutdown(10s));
    BOOST_REQUIRE(!got);
    BOOST_TEST(got.error().code == make_error_code(request_errc::checksum));
    char here[11];
    std::snprintf(here, sizeof here, "0x%08x", crc32c(payload(medium)));
    BOOST_TEST(got.error().detail.find("0x12345678") != std::string::npos, got.error().detail);
    BOOST_TEST(got.error().detail.find(here) != std::string::npos, got.error().detail);
    BOOST_TEST(asked == 2);
}

BOOST_AUTO_TEST_CASE(owner_that_knows_no_checksums_serves_and_none_is_reported) {
    std::atomic<int> asked{0};
    const scripted_owner owner(liar(100, std::nullopt, asked));
    auto consumer = start_tcp_node();
    const auto got = consumer.get(owner.target(), checked());
    BOOST_TEST(consumer.shutdown(10s));
    BOOST_REQUIRE_MESSAGE(got, got.error().message());
    BOOST_TEST(!got->report.crc32c.has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace
}  // namespace rvget::test
