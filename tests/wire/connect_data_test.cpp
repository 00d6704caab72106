#include "wire/connect_data.hpp"

#include <algorithm>
#include <vector>

#include <boost/test/unit_test.hpp>

#include "wire/samples.hpp"

namespace rvget::wire {
namespace {

using test::from_hex;
using test::to_hex;

connect_nonce sample_nonce() {
    connect_nonce nonce{};
    for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] = static_cast<std::uint8_t>(0xa0 + i);
    return nonce;
}
const std::string sample = "72766774 01 000000 a0a1a2a3a4a5a6a7a8a9aaabacadaeaf";

BOOST_AUTO_TEST_CASE(connect_data_encoded_is_the_documented_bytes) {
    const auto data = encode_connect_data(sample_nonce());
    BOOST_TEST((std::ranges::equal(data, from_hex(sample))));
    BOOST_TEST((decode_connect_data(data) == sample_nonce()));
}

BOOST_AUTO_TEST_CASE(connect_data_padded_with_zeros_is_read_and_with_anything_else_refused) {
    for (std::size_t length = connect_data_bytes; length <= 196; ++length) {
        auto data = from_hex(sample);
        data.resize(length);
        BOOST_TEST((decode_connect_data(data) == sample_nonce()));
        if (length == connect_data_bytes) continue;
        data.back() = std::byte{1};
        BOOST_TEST(!decode_connect_data(data));
    }
}

BOOST_AUTO_TEST_CASE(connect_data_cut_short_or_with_another_head_is_refused) {
    const auto whole = from_hex(sample);
    for (std::size_t length = 0; length < whole.size(); ++length)
        BOOST_TEST(!decode_connect_data(std::span(whole).first(length)));
    for (std::size_t at = 0; at < 8; ++at) {
        auto data = whole;
        data[at] ^= std::byte{1};
        BOOST_TEST(!decode_connect_data(data), "byte " << at);
    }
}

}  // namespace
}  // namespace rvget::wire
