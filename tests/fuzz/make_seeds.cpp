// Writes the seeds of all fuzzers: make_seeds <directory>; one folder per fuzzer.

#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include <rvget/handle.hpp>

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
