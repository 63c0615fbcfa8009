// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/storage/catalogue.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

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
  /// catalogue_cuts_test.cpp tells what flushes are for.
  catalogue::flusher flusher() {
    return [] {};
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
  c.store(i.writer(), i.flusher());
  auto const back = catalogue::load(16 * mib, i.reader());
  ASSERT_TRUE(back.has_value());
  ASSERT_EQ(back->extents().size(), 2u);
  EXPECT_EQ(back->find("edges")->first_byte, mib);
  EXPECT_EQ(back->find("edges")->size_bytes, 5u);
  EXPECT_EQ(back->find("embedding/0")->first_byte, 2 * mib);
  EXPECT_EQ(back->find("nothing"), nullptr);
}

TEST(Catalogue, ATornWriteLeavesTheOlderCopy) {
  image i;
  catalogue c(16 * mib);
  c.create("old", 1);
  c.store(i.writer(), i.flusher());
  image const before = i;
  c.create("new", 1);
  c.store(i.writer(), i.flusher());
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
  c.store(i.writer(), i.flusher());
  c.store(i.writer(), i.flusher());
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
  c.store(i.writer(), i.flusher());
  i.bytes[40] ^= 1;
  EXPECT_TRUE(catalogue::load(16 * mib, i.reader()).has_value()) << "both copies are written at first";
  i.bytes[catalogue::copy_bytes + 40] ^= 1;
  EXPECT_FALSE(catalogue::load(16 * mib, i.reader(), true).has_value());
}

TEST(Catalogue, ADigitThatHasChangedIsNoticed) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.store(i.writer(), i.flusher());
  // Still a table of extents, by its looks.
  std::string const was = R"("bytes":5,)", is = R"("bytes":7,)";
  for (std::size_t at = 0; at < catalogue::reserved_bytes; at += catalogue::copy_bytes) {
    auto const begin = i.bytes.begin() + static_cast<std::ptrdiff_t>(at);
    auto const found = std::search(begin, begin + 4096, was.begin(), was.end());
    ASSERT_NE(found, begin + 4096);
    std::copy(is.begin(), is.end(), found);
    if (at != 0) break;
    EXPECT_EQ(catalogue::load(16 * mib, i.reader())->find("edges")->size_bytes, 5u) << "of the other copy";
  }
  EXPECT_THAT([&] { catalogue::load(16 * mib, i.reader()); }, ThrowsMessage<operation_failed>(HasSubstr("damaged")));
}

TEST(Catalogue, TheFirstStoreWritesBothCopies) {
  for (std::size_t const damaged : {std::size_t{0}, std::size_t{catalogue::copy_bytes}}) {
    image i;
    catalogue c(16 * mib);
    c.create("edges", 5);
    c.store(i.writer(), i.flusher());
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
  c.store(i.writer(), i.flusher());
  EXPECT_EQ(catalogue::load(4096 * mib, i.reader())->extents().size(), 900u);
}

/// Changes the header or the text of the copy at `at`, and its checksum with it.
void forge(image& i, std::size_t at, std::uint32_t version, std::string const& text) {
  std::uint32_t const bytes = static_cast<std::uint32_t>(text.size());
  std::uint64_t sequence = 0;
  std::memcpy(&sequence, i.bytes.data() + at + 16, sizeof sequence);
  std::uint64_t hash = 0xcbf29ce484222325;
  auto const add = [&](void const* data, std::size_t n) {
    for (std::size_t k = 0; k < n; ++k) hash = (hash ^ static_cast<unsigned char const*>(data)[k]) * 0x100000001b3;
  };
  if (version != 1) add(&version, sizeof version);
  add(&sequence, sizeof sequence);
  add(&bytes, sizeof bytes);
  add(text.data(), text.size());
  std::memcpy(i.bytes.data() + at + 8, &version, sizeof version);
  std::memcpy(i.bytes.data() + at + 12, &bytes, sizeof bytes);
  std::memcpy(i.bytes.data() + at + 24, &hash, sizeof hash);
  std::memcpy(i.bytes.data() + at + 32, text.data(), text.size());
}
std::string text_of(image const& i, std::size_t at) {
  std::uint32_t bytes = 0;
  std::memcpy(&bytes, i.bytes.data() + at + 12, sizeof bytes);
  return {i.bytes.data() + at + 32, bytes};
}

TEST(Catalogue, AnyByteThatFlipsInOneCopyLeavesTheOther) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.store(i.writer(), i.flusher());
  for (std::size_t const copy : {std::size_t{0}, std::size_t{catalogue::copy_bytes}}) {
    std::size_t const used = 32 + text_of(i, copy).size();
    for (std::size_t byte = 0; byte < used; ++byte) {
      for (int const bit : {1, 2, 4, 64, 128}) {
        image damaged = i;
        damaged.bytes[copy + byte] = static_cast<char>(damaged.bytes[copy + byte] ^ bit);
        std::optional<catalogue> back;
        ASSERT_NO_THROW(back = catalogue::load(16 * mib, damaged.reader())) << "byte " << byte << " of " << copy;
        ASSERT_TRUE(back && back->find("edges") != nullptr) << "byte " << byte << " of " << copy;
      }
    }
  }
}

TEST(Catalogue, OfVersion1IsReadAndOfALaterOneRefused) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.store(i.writer(), i.flusher());
  std::string const text = text_of(i, 0);
  for (std::size_t const copy : {std::size_t{0}, std::size_t{catalogue::copy_bytes}}) forge(i, copy, 1, text);
  EXPECT_NE(catalogue::load(16 * mib, i.reader())->find("edges"), nullptr);
  forge(i, 0, 3, text);
  forge(i, catalogue::copy_bytes, 3, text);
  EXPECT_THAT([&] { catalogue::load(16 * mib, i.reader()); },
              ThrowsMessage<operation_failed>(HasSubstr("found version 3, can read up to version 2")));
}

TEST(Catalogue, WhatNobodyHereWouldStoreIsDamage) {
  for (std::string const& extents :
       {std::string(R"([{"name":"","first_byte":1048576,"bytes":5}])"),
        std::string(R"([{"name":"a","first_byte":1048576,"bytes":5},{"name":"a","first_byte":2097152,"bytes":5}])"),
        std::string("[{\"name\":\"a\\u0007\",\"first_byte\":1048576,\"bytes\":5}]"),
        std::string("[{\"name\":\"\\u009b0m\",\"first_byte\":1048576,\"bytes\":5}]"),
        std::string(R"([{"name":"a","first_byte":2097152,"bytes":5},{"name":"b","first_byte":1048576,"bytes":5}])"),
        std::string(R"([{"name":"a","first_byte":1048576.5,"bytes":5}])"),
        std::string(R"([{"name":"a","first_byte":1048576,"bytes":1e30}])"), std::string(100'000, '[')}) {
    image i;
    catalogue c(16 * mib);
    c.create("edges", 5);
    c.store(i.writer(), i.flusher());
    std::string const text = R"({"drives":1,"extents":)" + extents + R"(,"stripe_bytes":0})";
    forge(i, 0, 2, text);
    EXPECT_NE(catalogue::load(16 * mib, i.reader())->find("edges"), nullptr) << extents.substr(0, 60);
    forge(i, catalogue::copy_bytes, 2, text);
    EXPECT_THAT([&] { catalogue::load(16 * mib, i.reader()); }, ThrowsMessage<operation_failed>(HasSubstr("damaged")))
        << extents.substr(0, 60);
  }
}

TEST(Catalogue, ANumberOfDrivesThatDoesNotFitIsNotCutToOneThatDoes) {
  image i;
  catalogue c(16 * mib);
  c.create("edges", 5);
  c.store(i.writer(), i.flusher());
  for (std::size_t const copy : {std::size_t{0}, std::size_t{catalogue::copy_bytes}}) {
    forge(i, copy, 2, R"({"drives":4294967297,"extents":[],"stripe_bytes":0})");
  }
  EXPECT_THAT([&] { catalogue::load(16 * mib, i.reader()); },
              ThrowsMessage<operation_failed>(HasSubstr("made on 4294967297 drives")));
}

TEST(Catalogue, WhatIsStagedIsNotThereBeforeItIsPublished) {
  image i;
  catalogue c(8 * mib);
  c.create("edges", mib);
  c.store(i.writer(), i.flusher());
  extent const staged = c.stage("edges", 2 * mib);
  EXPECT_EQ(staged.first_byte, 2 * mib) << "beside the one that it is to replace";
  EXPECT_EQ(c.create("other", mib).first_byte, 4 * mib) << "the bytes are taken";
  EXPECT_EQ(c.find("edges")->first_byte, mib);
  c.store(i.writer(), i.flusher());
  EXPECT_EQ(catalogue::load(8 * mib, i.reader())->find("edges")->size_bytes, mib);
  EXPECT_THROW(c.publish(staged, false), refused_input) << "the name is in use";
  c.publish(staged, true);
  c.store(i.writer(), i.flusher());
  auto back = *catalogue::load(8 * mib, i.reader());
  EXPECT_EQ(back.extents().size(), 2u);
  EXPECT_EQ(back.find("edges")->first_byte, 2 * mib);
  EXPECT_EQ(back.create("third", mib).first_byte, mib) << "the old one is free";
  EXPECT_THROW(c.publish(staged, true), refused_input);
  extent const given_up = c.stage("x", mib);
  c.discard(given_up);
  EXPECT_EQ(c.stage("y", mib).first_byte, given_up.first_byte);
  EXPECT_THROW(c.discard(given_up.name == "x" ? extent{"x", 7 * mib, mib} : given_up), refused_input);
}

TEST(Catalogue, TakesOverWhatAnotherProgramStored) {
  image i;
  catalogue first(16 * mib);
  first.create("first", 1);
  first.store(i.writer(), i.flusher());
  catalogue second = *catalogue::load(16 * mib, i.reader());
  extent const lost = first.stage("lost", mib + 1), kept = first.stage("kept", 1);
  second.create("second", 1);  // where `lost` begins
  second.remove("first");
  second.store(i.writer(), i.flusher());

  first.catch_up(*catalogue::load(16 * mib, i.reader()));
  ASSERT_EQ(first.extents().size(), 1u);
  EXPECT_EQ(first.extents()[0].name, "second");
  EXPECT_THROW(first.publish(lost, false), refused_input);
  first.publish(kept, false);
  first.store(i.writer(), i.flusher());
  second.catch_up(*catalogue::load(16 * mib, i.reader()));
  EXPECT_NE(second.find("kept"), nullptr) << "the sequence goes on from the other's";
}

TEST(Catalogue, TakesOverAnotherTableOfTheSameSequence) {
  image i;
  catalogue first(16 * mib);
  first.create("both", 1);
  first.store(i.writer(), i.flusher());
  catalogue second = *catalogue::load(16 * mib, i.reader());
  first.create("first", 1);
  first.store(i.writer(), i.flusher());
  second.create("second", 1);
  second.store(i.writer(), i.flusher());  // it had not read what the first one stored
  first.catch_up(*catalogue::load(16 * mib, i.reader()));
  EXPECT_EQ(first.find("first"), nullptr);
  EXPECT_NE(first.find("second"), nullptr);
}

TEST(Catalogue, WhatAFailedStoreLeftIsGoneOverAndWhatOthersStoredSinceIsNot) {
  for (bool const reached : {true, false}) {
    for (bool const others : {false, true}) {
      image i;
      catalogue first(16 * mib);
      first.create("old", 1);
      first.store(i.writer(), i.flusher());
      std::optional<catalogue> given_up = first;
      given_up->create("new", 1);
      given_up->store(reached ? i.writer() : [](void const*, std::uint64_t, std::uint64_t) {}, i.flusher());
      if (others) {
        catalogue second = *catalogue::load(16 * mib, i.reader());
        // The very table that the first one failed to store, where that did not reach the drive.
        second.create(reached ? "others" : "new", 1);
        second.store(i.writer(), i.flusher());
      }
      first.catch_up(*catalogue::load(16 * mib, i.reader()), given_up);
      EXPECT_EQ(first.find("new") != nullptr, others);
      EXPECT_EQ(first.find("others") != nullptr, reached && others);
      first.create("last", 1);
      first.store(i.writer(), i.flusher());
      auto const back = *catalogue::load(16 * mib, i.reader());
      EXPECT_NE(back.find("old"), nullptr);
      EXPECT_NE(back.find("last"), nullptr) << "its sequence is the highest";
      EXPECT_EQ(back.find("new") != nullptr, others);
    }
  }
}

TEST(Catalogue, OneThatIsFullStaysAsItIs) {
  image i;
  catalogue c(4096 * mib);
  std::string const quotes(250, '"');  // two bytes each, as they are stored
  for (int k = 0; k < 900; ++k) c.create(std::to_string(k) + quotes, 1);
  c.store(i.writer(), i.flusher());
  image const before = i;
  catalogue more = c;
  for (int k = 900; k < 1100; ++k) more.create(std::to_string(k) + quotes, 1);
  EXPECT_THAT([&] { more.store(i.writer(), i.flusher()); }, ThrowsMessage<refused_input>(HasSubstr("full")));
  EXPECT_EQ(i.bytes, before.bytes);
}

TEST(Catalogue, OneThatWasGivenUpIsNotTakenForAnotherWhereItLay) {
  catalogue c(16 * mib);
  extent const large = c.stage("large", 10 * mib);
  c.discard(large);
  extent const small = c.stage("small", mib);
  ASSERT_EQ(small.first_byte, large.first_byte);
  c.create("behind", mib);
  EXPECT_THROW(c.publish(large, false), refused_input);
  EXPECT_THROW(c.discard({"small", small.first_byte, 2 * mib}), refused_input);
  EXPECT_THROW(c.discard({"other", small.first_byte, mib}), refused_input);
  EXPECT_NO_THROW(c.publish(small, false));
}

TEST(Catalogue, OfOtherDrivesIsRefused) {
  image i;
  catalogue c(catalogue_home(16 * mib, 2, 65536));
  c.create("edges", 5);
  c.store(i.writer(), i.flusher());
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
  c.store(i.writer(), i.flusher());
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
  EXPECT_THAT([&] { c.create("a", 1); }, ThrowsMessage<refused_input>(HasSubstr("is there already")));
  EXPECT_THROW(c.create("", 1), refused_input);
  EXPECT_THROW(c.create(std::string(256, 'x'), 1), refused_input);
  for (char const* const name : {"a\nb", "\x1b[2J", "tab\t", "\x7f", "\xc2\x85"}) {
    EXPECT_THAT([&] { c.create(name, 1); }, ThrowsMessage<refused_input>(HasSubstr("control characters"))) << name;
  }
  EXPECT_NO_THROW(c.create("\xc2\xa0\xe2\x82\xac", 1));
  c.remove("\xc2\xa0\xe2\x82\xac");
  EXPECT_THROW(c.create("b", 0), refused_input);
  EXPECT_THROW(c.remove("b"), refused_input);
}

}  // namespace
}  // namespace forebay
