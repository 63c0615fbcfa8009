// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/drive/uri.hpp"

#include <gtest/gtest.h>

#include <string>

#include "forebay/error.hpp"

namespace forebay::drive {
namespace {

template <class Call>
std::string refusal(Call&& call) {
  try {
    call();
  } catch (refused_input const& refused) {
    return refused.what();
  }
  return "accepted";
}

std::string parse_refusal(std::string const& text) {
  return refusal([&] { uri::parse(text); });
}

TEST(uri, takes_keys_with_and_without_a_first_comma) {
  for (char const* text : {"emulated:size=64M,iops=20000", "emulated:,size=64M,iops=20000"}) {
    uri const u = uri::parse(text);
    EXPECT_EQ(u.scheme(), "emulated");
    EXPECT_EQ(u.name(), "");
    EXPECT_EQ(u.value("size"), "64M");
    EXPECT_EQ(u.value("iops"), "20000");
    EXPECT_EQ(u.value("seed"), std::nullopt);
    EXPECT_EQ(u.text(), text);
  }
}

TEST(uri, a_refusal_is_one_line_whatever_the_text_has) {
  EXPECT_EQ(parse_refusal("emulated:size=1\n2,si\x7fze=3"),
            "si\\x7fze: '3': emulated: has no such key; did you mean size?");
  EXPECT_EQ(parse_refusal(std::string("emulated:\n\0x", 12)),
            "drive: '\\x0a\\x00x': write key=value between commas, as in size=1G");
}

TEST(uri, takes_a_name_that_may_hold_an_equals_sign) {
  uri const u = uri::parse("file:/data/x=y.img,lba_bytes=4096");
  EXPECT_EQ(u.name(), "/data/x=y.img");
  EXPECT_EQ(u.value("lba_bytes"), "4096");
  EXPECT_EQ(uri::parse("pci:0000:01:00.0").name(), "0000:01:00.0");
}

TEST(uri, an_empty_value_is_a_value) {
  EXPECT_EQ(uri::parse("emulated:profile=,size=1G").value("profile"), "");
}

TEST(uri, refusals) {
  std::string const scheme =
      "begin with emulated:, file:, file-extents: or pci:, as in emulated:profile=d7-ps1010,size=1G";
  EXPECT_EQ(parse_refusal(""), "drive: '': " + scheme);
  EXPECT_EQ(parse_refusal("size=1G"), "drive: 'size=1G': " + scheme);
  EXPECT_EQ(parse_refusal("emulate:size=1G"), "drive: 'emulate:size=1G': " + scheme);
  EXPECT_EQ(parse_refusal("emulated:sizx=1G"), "sizx: '1G': emulated: has no such key; did you mean size?");
  EXPECT_EQ(parse_refusal("emulated:size=1G,latency=5"),
            "latency: '5': emulated: has no such key; did you mean latency_us?");
  EXPECT_EQ(parse_refusal("emulated:size=1G,quues=5"), "quues: '5': emulated: has no such key; did you mean queues?");
  EXPECT_EQ(parse_refusal("emulated:size=1G,size=2G"), "size: '2G': give each key once");
  EXPECT_EQ(parse_refusal("emulated:d7-ps1010"), "drive: 'd7-ps1010': write key=value between commas, as in size=1G");
  EXPECT_EQ(parse_refusal("emulated:size=1G,,queues=2"), "drive: '': write key=value between commas, as in size=1G");
  EXPECT_EQ(parse_refusal("emulated:size=1G,=5"), "drive: '=5': write key=value between commas, as in size=1G");
  EXPECT_EQ(parse_refusal("file:"), "drive: 'file:': give the path of a file after file:");
  EXPECT_EQ(parse_refusal("file:,lba_bytes=512"), "drive: 'file:,lba_bytes=512': give the path of a file after file:");
  EXPECT_EQ(parse_refusal("file:/x,iops=5"), "iops: '5': file: has no such key; did you mean io?");
  EXPECT_EQ(parse_refusal("pci:0000:01:00.0,size=1"), "size: '1': pci: has no such key; did you mean nsid?");
}

TEST(parse_bytes, takes_powers_of_1024) {
  EXPECT_EQ(parse_bytes("size", "512"), 512u);
  EXPECT_EQ(parse_bytes("size", "4K"), 4096u);
  EXPECT_EQ(parse_bytes("size", "64M"), 64u << 20);
  EXPECT_EQ(parse_bytes("size", "2G"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("size", "2GiB"), std::uint64_t{2} << 30);
  EXPECT_EQ(parse_bytes("size", "3T"), std::uint64_t{3} << 40);
}

TEST(parse_bytes, refusals) {
  std::string const remedy = "': give a whole number of bytes, such as 4096, 64M or 2G";
  for (std::string const bad : {"", "M", "1.5G", "-1", "1X", "12iB", "4 K", "0x10", "1GB"}) {
    EXPECT_EQ(refusal([&] { parse_bytes("size", bad); }), "size: '" + bad + remedy);
  }
  EXPECT_EQ(refusal([] { parse_bytes("size", "0"); }), "size: '0': give more than 0 bytes");
  EXPECT_EQ(refusal([] { parse_bytes("size", "9000000T"); }), "size: '9000000T': give less than 8 EiB");
  EXPECT_EQ(refusal([] { parse_bytes("size", "99999999999999999999"); }), "size: '99999999999999999999" + remedy);
}

TEST(parse_rate, takes_powers_of_1000_and_refuses_the_rest) {
  EXPECT_EQ(parse_rate("iops", "20000"), 20'000.0);
  EXPECT_EQ(parse_rate("iops", "2.47M"), 2.47e6);
  EXPECT_EQ(parse_rate("bandwidth", "7.2G"), 7.2e9);
  for (std::string const bad : {"", "0", "-5", "1e300", "nan", "inf", "5X", "2M2"}) {
    EXPECT_EQ(refusal([&] { parse_rate("iops", bad); }),
              "iops: '" + bad + "': give a rate a second from 1 to 1000G, such as 20000, 2.47M or 7.2G");
  }
}

TEST(parse_count, refuses_what_is_out_of_range) {
  EXPECT_EQ(parse_count("threads", "8", 1, 16), 8u);
  for (std::string const bad : {"", "0", "17", "-1", "2.5", "x", "99999999999999999999"}) {
    EXPECT_EQ(refusal([&] { parse_count("threads", bad, 1, 16); }),
              "threads: '" + bad + "': give a whole number from 1 to 16");
  }
}

TEST(parse_microseconds, takes_fractions_and_refuses_the_rest) {
  EXPECT_EQ(parse_microseconds("latency_us", "6.5"), 6.5);
  EXPECT_EQ(parse_microseconds("latency_us", "0"), 0.0);
  for (std::string const bad : {"", "-1", "nan", "5us", "1e99"}) {
    EXPECT_EQ(refusal([&] { parse_microseconds("latency_us", bad); }),
              "latency_us: '" + bad + "': give microseconds from 0 to 3600000000, such as 50 or 6.5");
  }
}

TEST(nearest, is_the_least_edit_distance) {
  EXPECT_EQ(nearest("treads", {"size", "threads", "queues"}), "threads");
  EXPECT_EQ(nearest("", {"size", "iops"}), "size");
}

}  // namespace
}  // namespace forebay::drive
