// SPDX-License-Identifier: Apache-2.0
#include "forebay/storage/catalogue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "forebay/error.hpp"

namespace forebay {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

constexpr std::uint64_t mib = 1 << 20;

/// The first MiB of a storage.
struct image {
  std::vector<char> bytes = std::vector<char>(catalogue::reserved_bytes);

  catalogue::reader reader() {
    return [this](void* to, std::uint64_t n, std::uint64_t at) { std::memcpy(to, bytes.data() + at, n); };
  }
  catalogue::writer writer() {
    return [this](void const* from, std::uint64_t n, std::uint64_t at) { std::memcpy(bytes.data() + at, from, n); };
  }
};

TEST(Catalogue, BlankStorageHasNone) {
  image i;
  EXPECT_FALSE(catalogue::load(16 * mib, i.reader()).has_value());
}

TEST(Catalogue, ComesBackAsStored) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.create("embedding/0", 3 * mib);
  c.store(i.writer());
  auto const back = catalogue::load(16 * mib, i.reader());
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back->extents().size(), 2u);
  EXPECT_EQ(back->find("edges")->first_byte, mib);
  EXPECT_EQ(back->find("edges")->bytes, 5u);
  EXPECT_EQ(back->find("embedding/0")->first_byte, 2 * mib);
  EXPECT_EQ(back->find("nothing"), nullptr);
}

TEST(Catalogue, ATornWriteLeavesTheOlderCopy) {
  image i;
  catalogue c(16 * mib);
  c.create("old", 1);
  c.store(i.writer());
  image const before = i;
  c.create("new", 1);
  c.store(i.writer());
  // Every prefix of the second write, in steps of 8 bytes, over what was there before it.
  std::size_t recovered = 0;
  for (std::size_t written = 0; written <= 1024; written += 8) {
    image torn = before;
    std::size_t const at =
        std::equal(before.bytes.begin(), before.bytes.begin() + catalogue::copy_bytes, i.bytes.begin())
            ? catalogue::copy_bytes
            : 0;
    std::memcpy(torn.bytes.data() + at, i.bytes.data() + at, written);
    auto const back = catalogue::load(16 * mib, torn.reader());
    ASSERT_TRUE(back.has_value()) << written;
    EXPECT_NE(back->find("old"), nullptr) << written;
    recovered += back->find("new") == nullptr;
  }
  EXPECT_GT(recovered, 0u);
  EXPECT_LT(recovered, 129u) << "the whole second copy must count";
}

TEST(Catalogue, TwoDamagedCopiesAreAnErrorNotABlankDrive) {
  image i;
  catalogue c(16 * mib);
  c.create("a", 1);
  c.store(i.writer());
  c.store(i.writer());
  i.bytes[40] ^= 1;
  i.bytes[catalogue::copy_bytes + 40] ^= 1;
  EXPECT_THAT([&] { catalogue::load(16 * mib, i.reader()); }, ThrowsMessage<operation_failed>(HasSubstr("damaged")));
}

TEST(Catalogue, FillsTheFirstGapThatIsLargeEnough) {
  catalogue c(8 * mib);
  c.create("a", 2 * mib);
  c.create("b", 1);
  c.create("c", mib);
  c.remove("a");
  EXPECT_EQ(c.create("d", 3 * mib).first_byte, 5 * mib);
  EXPECT_EQ(c.create("e", mib + 1).first_byte, mib);
  EXPECT_THAT([&] { c.create("f", 1); }, ThrowsMessage<refused_input>(HasSubstr("no gap")));
}

TEST(Catalogue, TwoDamagedCopiesAreNoCatalogueWhereThatIsAskedFor) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.store(i.writer());
  i.bytes[40] ^= 1;
  EXPECT_TRUE(catalogue::load(16 * mib, i.reader()).has_value()) << "both copies are written at first";
  i.bytes[catalogue::copy_bytes + 40] ^= 1;
  EXPECT_FALSE(catalogue::load(16 * mib, i.reader(), true).has_value());
}

TEST(Catalogue, ADigitThatHasChangedIsNoticed) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.store(i.writer());
  // Still a table of extents, by its looks.
  std::string const was = R"("bytes":5,)", is = R"("bytes":7,)";
  for (std::size_t at = 0; at < catalogue::reserved_bytes; at += catalogue::copy_bytes) {
    auto const begin = i.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    auto const found = std::search(begin, begin + 4096, was.begin(), was.end());
    ASSERT_NE(found, begin + 4096);
    std::copy(is.begin(), is.end(), found);
    if (at != 0) break;
    EXPECT_EQ(catalogue::load(16 * mib, i.reader())->find("edges")->bytes, 5u) << "of the other copy";
  }
  EXPECT_THAT([&] { catalogue::load(16 * mib, i.reader()); }, ThrowsMessage<operation_failed>(HasSubstr("damaged")));
}

TEST(Catalogue, TheFirstStoreWritesBothCopies) {
  for (std::size_t const damaged : {std::size_t{0}, std::size_t{catalogue::copy_bytes}}) {
    image i;
    catalogue c(16 * mib);
    c.create("edges", 5);
    c.store(i.writer());
    std::memset(i.bytes.data() + damaged, 0, catalogue::copy_bytes);
    auto const back = catalogue::load(16 * mib, i.reader());
    ASSERT_TRUE(back.has_value()) << damaged;
    EXPECT_NE(back->find("edges"), nullptr);
  }
}

TEST(Catalogue, ALongOneIsReadToItsEnd) {
  image i;
  catalogue c(4096 * mib);
  for (int k = 0; k < 900; ++k) c.create("extent " + std::to_string(k), mib);
  c.store(i.writer());
  EXPECT_EQ(catalogue::load(4096 * mib, i.reader())->extents().size(), 900u);
}

TEST(Catalogue, OfOtherDrivesIsRefused) {
  image i;
  catalogue c(catalogue_home(16 * mib, 2, 65536));
  c.create("edges", 5);
  c.store(i.writer());
  EXPECT_TRUE(catalogue::load(catalogue_home(16 * mib, 2, 65536), i.reader()).has_value());
  for (catalogue_home const& other :
       {catalogue_home(16 * mib), catalogue_home(16 * mib, 3, 65536), catalogue_home(16 * mib, 2, 4096)}) {
    EXPECT_THAT([&] { catalogue::load(other, i.reader()); },
                ThrowsMessage<operation_failed>(HasSubstr("made on 2 drives with stripes of 65536 bytes")));
  }
}

TEST(Catalogue, OfALargerStorageIsRefused) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 12 * mib);
  c.store(i.writer());
  EXPECT_TRUE(catalogue::load(13 * mib, i.reader()).has_value());
  EXPECT_THAT([&] { catalogue::load(12 * mib, i.reader()); },
              ThrowsMessage<operation_failed>(HasSubstr("of other drives")));
}

TEST(Catalogue, RefusesNamesThatItCouldNotStore) {
  catalogue c(16 * mib);
  EXPECT_THAT([&] { c.create("\xff", 1); }, ThrowsMessage<refused_input>(HasSubstr("UTF-8")));
  EXPECT_TRUE(c.extents().empty());
}

TEST(Catalogue, RefusesBadNames) {
  catalogue c(8 * mib);
  c.create("a", 1);
  EXPECT_THAT([&] { c.create("a", 1); }, ThrowsMessage<refused_input>(HasSubstr("in use")));
  EXPECT_THROW(c.create("", 1), refused_input);
  EXPECT_THROW(c.create(std::string(256, 'x'), 1), refused_input);
  EXPECT_THROW(c.create("b", 0), refused_input);
  EXPECT_THROW(c.remove("b"), refused_input);
}

}  // namespace
}  // namespace forebay
