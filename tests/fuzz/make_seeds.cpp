// Writes the seeds of all fuzzers: make_seeds <directory>; one folder per fuzzer.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <rvget/handle.hpp>

#include "fuzz/session_steps.hpp"
#include "wire/connect_data.hpp"
#include "wire/samples.hpp"

namespace {

using namespace rvget;
using namespace rvget::wire;

class seed_folder {
public:
    seed_folder(const std::filesystem::path& root, const std::string& fuzzer)
        : path_(root / fuzzer) {
        std::filesystem::create_directories(path_);
    }
    void add(std::span<const std::byte> bytes) {
        std::ofstream out;
        out.exceptions(std::ios::failbit | std::ios::badbit);
        out.open(path_ / ("seed-" + std::to_string(count_++)), std::ios::binary);
        out.write(reinterpret_cast<const char*>(bytes.data()),
                  static_cast<std::streamsize>(bytes.size()));
    }
    void add(std::string_view text) { add(std::as_bytes(std::span(text))); }

private:
    std::filesystem::path path_;
    int count_ = 0;
};

queue_pair_facts facts_of_a_stranger() {
    auto f = wire::test::sample_facts();
    f.path_mtu = 1024;
    return f;
}

/// Sessions in which the peer keeps to the protocol, for the fuzzer to break.
void write_sessions(const std::filesystem::path& root) {
    using rvget::test::session_side;
    using rvget::test::session_step;
    using rvget::test::session_writer;
    seed_folder sessions(root, "session");
    const auto hello_of = [](std::uint64_t id) { return encode({0, hello{.node = node_id{id}}}); };
    const acquire whole{.slot = 1, .deadline_ms = 400};
    auto offering = whole;
    offering.offer = lane_offer{1, 1, facts_of_a_stranger()};

    session_writer chunks(session_side::owner);
    chunks.frame(hello_of(9)).frame(encode({1, whole})).frame(encode({2, pull{1, 0, 4096}}));
    chunks.frame(encode({3, renew{1}})).frame(encode({0, detach{{1}}}));
    chunks.frame(encode({4, metadata_request{2}})).frame(encode({5, ping{}}));
    chunks.frame(encode({6, reference{2, reference_change::add}}));
    chunks.frame(encode({7, reference{2, reference_change::release}}));
    sessions.add(chunks.bytes);

    session_writer lanes(session_side::owner);
    lanes.frame(hello_of(9)).frame(encode({1, offering})).step(session_step::nic).u8(20);
    lanes.frame(encode({2, renew{1}})).step(session_step::wait).u8(5);
    lanes.frame(encode({3, renew{1, lane_offer{2, 1, facts_of_a_stranger()}}}));
    lanes.step(session_step::nic).u8(20).frame(encode({0, lane_down{2, reason::get_failed}}));
    lanes.step(session_step::hang_up).step(session_step::call_again).u8(0);
    lanes.frame(hello_of(9)).frame(encode({1, offering})).frame(encode({0, goodbye{"enough"}}));
    sessions.add(lanes.bytes);

    session_writer abandoned(session_side::owner);
    abandoned.frame(hello_of(9)).frame(encode({1, offering})).step(session_step::nic).u8(20);
    abandoned.step(session_step::wait).u8(30).step(session_step::nic).u8(20);
    abandoned.frame(encode({2, renew{1}})).frame(encode({0, detach{{1}}}));
    sessions.add(abandoned.bytes);

    acquire_reply in_chunks{.answer = answer::chunked,
                            .why = reason::not_pinned,
                            .slot_bytes = 10'000,
                            .range_bytes = 10'000,
                            .lease = 5,
                            .duration_ms = 300};
    session_writer pulled(session_side::consumer);
    pulled.frame(hello_of(7)).frame(encode({1, in_chunks}));
    for (std::uint64_t id = 2; id < 5; ++id)
        pulled.frame(encode({id, chunk{}}), id == 4 ? 10'000 - 2 * 4096 : 4096);
    pulled.step(session_step::call_again).u8(2);
    pulled.frame(encode({5, acquire_reply{.answer = answer::busy, .retry_after_ms = 20}}));
    pulled.step(session_step::wait).u8(3);
    pulled.frame(encode({6, acquire_reply{.answer = answer::inline_answer,
                                          .why = reason::below_min,
                                          .slot_bytes = 16,
                                          .range_bytes = 16}}),
                 16);
    sessions.add(pulled.bytes);

    descriptor d = wire::test::sample_descriptor();
    d.length = 10'000;
    d.lease = 5;
    d.duration_ms = 300;
    d.generation = 1;
    auto by_nic = in_chunks;
    by_nic.answer = answer::rdma;
    by_nic.why = reason::ok;
    by_nic.descriptor = encode(d);
    by_nic.lane_generation = 1;
    by_nic.lane_facts = facts_of_a_stranger();
    session_writer read(session_side::consumer);
    read.frame(hello_of(7)).frame(encode({1, by_nic})).step(session_step::nic).u8(30);
    read.frame(encode({2, renew_reply{true, 300}})).step(session_step::call_again).u8(2);
    read.step(session_step::cancel).step(session_step::nic).u8(30);
    read.frame(encode({0, lane_down{1, reason::get_failed}})).step(session_step::hang_up);
    sessions.add(read.bytes);
}

void write_seeds(const std::filesystem::path& root) {
    seed_folder frames(root, "frame");
    for (const auto& golden : wire::test::golden_frames()) {
        frames.add(encode(golden.frame));
    }
    frames.add(encode_prefix({64, 4096}));
    frames.add(wire::test::from_hex("0f00 0f00000000000000 80 0200 aabb ff 0000"));

    seed_folder secrets(root, "secret_message");
    for (const auto& m : wire::test::secret_samples()) secrets.add(encode(m));

    descriptor plain = wire::test::sample_descriptor();
    descriptor rich = plain;
    rich.crc32c = 0xc0ffee00;
    rich.mode = lease_mode::exact;
    rich.keys = {{0, 1}, {1, 2}, {255, 0xffffffff}};
    seed_folder descriptors(root, "descriptor");
    seed_folder keys(root, "packed_key");
    for (const descriptor& d : {plain, rich}) {
        descriptors.add(encode(d));
        keys.add(pack_keys(d.keys));
    }

    seed_folder knocks(root, "connect_data");
    for (const std::size_t length : {connect_data_bytes, std::size_t{56}}) {
        std::vector<std::byte> data(length);
        std::ranges::copy(encode_connect_data({1, 2, 3}), data.begin());
        knocks.add(data);
    }

    write_sessions(root);

    seed_folder completions(root, "mlx5_completion");
    for (const std::string_view last : {"00", "d0", "04", "20", "f1"}) {
        completions.add(wire::test::from_hex(std::string(126, '0') + std::string(last)));
    }

    const handle name{node_id{0x0123456789abcdef}, 0xfedcba9876543210};
    seed_folder handles(root, "handle");
    handles.add(name.to_string());
    handles.add(name.to_string() + "0");
    seed_folder urls(root, "url");
    for (const char* host : {"localhost", "10.0.0.2", "node-7.rack_2.example.com", "fe80::1%eth0",
                             "::ffff:10.0.0.2", "2001:db8::1"}) {
        const endpoint_address address{host, 7471};
        urls.add(url{address, name}.to_string());
        urls.add(address.to_string());
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        std::cerr << "usage: make_seeds <directory>\n";
        return 2;
    }
    try {
        write_seeds(argv[1]);
    } catch (const std::exception& e) {
        std::cerr << "make_seeds: " << e.what() << "\n";
        return 1;
    }
    return 0;
}
