// SPDX-License-Identifier: Apache-2.0
#include "forebay/detail/cache/cache.hpp"

#include <bit>
#include <vector>

#include "forebay/detail/memory/peek.hpp"
#include "forebay/error.hpp"

namespace forebay {
namespace {

/// Hands out parts of one allocation, once their sizes have been added up.
class parts {
 public:
  std::size_t add(std::size_t bytes, std::size_t alignment_bytes) {
    used_ = (used_ + alignment_bytes - 1) / alignment_bytes * alignment_bytes;
    std::size_t const at = used_;
    used_ += bytes;
    return at;
  }
  std::size_t size_bytes() const { return used_; }

 private:
  std::size_t used_ = 0;
};

constexpr std::size_t line_bytes = 128;

}  // namespace

void cache::check_page(std::uint32_t page_bytes) {
  if (!std::has_single_bit(page_bytes) || page_bytes < 512 || page_bytes > 65536) {
    throw refused_input("cache.page_bytes", std::to_string(page_bytes), "give a power of two, 512 to 65536");
  }
}

void cache::check(cache_options const& options, storage_layout const& layout) {
  std::uint32_t const page = options.page_bytes;
  std::uint64_t const block = std::uint64_t{1} << layout.block_shift;
  check_page(page);
  if (page < block || page > layout.command_bytes_max) {
    throw refused_input("cache.page_bytes", std::to_string(page),
                        "the drives read " + std::to_string(block) + " to " + std::to_string(layout.command_bytes_max) +
                            " bytes with one command; give a page of such a size");
  }
  if (layout.drive_count > 1 && layout.stripe_bytes % page != 0) {
    throw refused_input(
        "stripe_bytes", std::to_string(layout.stripe_bytes),
        "give a multiple of the page, " + std::to_string(page) + " bytes: a page must lie on one drive");
  }
  if (layout.file_extents != nullptr && layout.stripe_bytes % page != 0) {
    throw refused_input("cache.page_bytes", std::to_string(page),
                        "a page must lie in one extent of the file, and those begin at multiples of " +
                            std::to_string(layout.stripe_bytes) + " bytes: give at most that");
  }
  std::uint64_t const set_bytes = std::uint64_t{page} * cache_ways;
  if (options.size_bytes == 0 || options.size_bytes % set_bytes != 0) {
    throw refused_input(
        "cache.size_bytes", std::to_string(options.size_bytes),
        "give a multiple of 16 pages, " + std::to_string(set_bytes) + " bytes: " +
            (options.size_bytes < set_bytes
                 ? "that is the least"
                 : std::to_string(options.size_bytes / set_bytes * set_bytes) + " is the nearest below"));
  }
  constexpr std::uint64_t max_frames = cache_targets<void>::max_frames;
  if (options.size_bytes / page > max_frames) {
    throw refused_input("cache.size_bytes", std::to_string(options.size_bytes),
                        "a cache has at most 2^28 pages; give larger pages, or fewer bytes");
  }
  if (options.own_frames() > max_frames) {
    throw refused_input("cache.overflow_frames", std::to_string(options.overflow_frames),
                        "these and the cache's pages must be at most 2^28 together; give at most " +
                            std::to_string(max_frames - options.size_bytes / page));
  }
  if (options.frames() > max_frames) {
    throw refused_input(
        "cache.user_frames", std::to_string(options.user_frames),
        "these, the cache's pages and cache.overflow_frames must be at most 2^28 together; give at most " +
            std::to_string(max_frames - options.own_frames()));
  }
  if (options.staging_pages > max_frames) {
    throw refused_input("cache.staging_pages", std::to_string(options.staging_pages), "give at most 2^28");
  }
  if (options.host_size_bytes % options.size_bytes != 0) {
    throw refused_input("cache.host_size_bytes", std::to_string(options.host_size_bytes),
                        "give a multiple of cache.size_bytes, " + std::to_string(options.size_bytes) + " bytes, or 0");
  }
  if (options.host_size_bytes / page > ~std::uint32_t{0}) {
    throw refused_input("cache.host_size_bytes", std::to_string(options.host_size_bytes),
                        "the host pool has at most 2^32 - 1 pages; give larger pages, or fewer bytes");
  }
  std::uint64_t const sets = options.size_bytes / set_bytes;
  std::uint64_t const pages = (layout.size_bytes + page - 1) / page;
  std::uint64_t const sets_needed = ((pages - 1) >> page_word::tag_bits) + 1;
  if (sets < sets_needed) {
    throw refused_input("cache.size_bytes", std::to_string(options.size_bytes),
                        "for " + std::to_string(layout.size_bytes) + " bytes of drives give at least " +
                            std::to_string(sets_needed * set_bytes) + ", or larger pages");
  }
}

cache::cache(cache_options const& options, storage_layout const& layout, io_queues const& queues, buffer_ref frames,
             memory::resource& state_memory, memory::resource& host_memory, buffer_ref staging)
    : options_(options) {
  check(options, layout);
  auto const sets = static_cast<std::uint32_t>(options.size_bytes / options.page_bytes / cache_ways);
  auto const frame_count = static_cast<std::uint32_t>(options.frames());
  std::uint32_t const overflow = options.overflow_frames;
  std::uint32_t const users = options.user_frames;
  std::uint32_t const outside = overflow + users;
  auto const host_groups = static_cast<std::uint32_t>(options.host_size_bytes / options.size_bytes);
  std::uint64_t const host_ways = std::uint64_t{sets} * host_groups * replacement::max_ways;
  parts plan;
  std::size_t const state_at = plan.add(sizeof(cache_state), line_bytes);
  std::size_t const words_at = plan.add(std::size_t{frame_count} * sizeof(std::uint64_t), line_bytes);
  std::size_t const fingerprints_at =
      plan.add(std::size_t{sets} * fingerprints::words_per_set * sizeof(std::uint64_t), line_bytes);
  std::size_t const sets_at = plan.add(std::size_t{sets} * options.policy.set_bytes, line_bytes);
  std::size_t const notes_at = plan.add(std::size_t{frame_count} * sizeof(std::uint32_t), line_bytes);
  std::size_t const outside_at = plan.add(std::size_t{outside} * sizeof(outside_frame), line_bytes);
  std::size_t const users_at = plan.add(std::size_t{users} * sizeof(user_frame), line_bytes);
  std::uint32_t const free_overflow_words = slot_pool::words_for(overflow);
  std::uint32_t const free_user_words = slot_pool::words_for(users);
  std::uint32_t const free_staging_words = slot_pool::words_for(options.staging_pages);
  std::size_t const free_at = plan.add(
      (std::size_t{free_overflow_words} + free_user_words + free_staging_words) * sizeof(std::uint32_t), line_bytes);
  std::size_t const slots_at =
      plan.add(options.staging_pages != 0 ? options.own_frames() * sizeof(std::uint32_t) : 0, line_bytes);
  std::size_t const host_words_at = plan.add(host_ways * sizeof(std::uint32_t), line_bytes);
  std::size_t const host_policy_at =
      plan.add(std::uint64_t{sets} * host_groups * options.host_policy.state_bytes, line_bytes);
  std::size_t const counters_at = plan.add(cache_core::counter_stripes * sizeof(cache_counters), line_bytes);
  memory_ = memory::allocation(state_memory, plan.size_bytes(), line_bytes);

  auto* const base = memory_.as<std::byte>();
  cache_state& s = host_copy_;
  s.words = reinterpret_cast<std::uint64_t*>(base + words_at);
  s.notes = reinterpret_cast<std::uint32_t*>(base + notes_at);
  s.fingerprints = reinterpret_cast<std::uint64_t*>(base + fingerprints_at);
  s.frames = frame_count;
  s.counters = reinterpret_cast<cache_counters*>(base + counters_at);
  s.sets = base + sets_at;
  s.set_bytes = static_cast<std::uint32_t>(options.policy.set_bytes);
  s.mapping = page_sets(sets);
  s.page_shift = static_cast<std::uint32_t>(std::countr_zero(options.page_bytes));
  s.overflow_count = overflow;
  s.user_count = users;
  s.outside = reinterpret_cast<outside_frame*>(base + outside_at);
  s.users = reinterpret_cast<user_frame*>(base + users_at);
  s.free_overflow = {reinterpret_cast<std::uint32_t*>(base + free_at), free_overflow_words};
  s.free_users = {s.free_overflow.words + free_overflow_words, free_user_words};
  if (options.staging_pages != 0) {
    s.staging.pages = staging;
    s.staging.free = {s.free_users.words + free_user_words, free_staging_words};
    s.staging.slots = reinterpret_cast<std::uint32_t*>(base + slots_at);
    s.staging.frames = frames.data();
    s.staging.frame_count = static_cast<std::uint32_t>(options.own_frames());
    s.staging.page_shift = s.page_shift;
  }
  if (host_groups != 0) {
    host_frames_ = memory::allocation(host_memory, options.host_size_bytes, line_bytes);
    s.host.words = reinterpret_cast<std::uint32_t*>(base + host_words_at);
    s.host.policy_states = base + host_policy_at;
    s.host.policy_state_bytes = static_cast<std::uint32_t>(options.host_policy.state_bytes);
    s.host.groups = host_groups;
    s.host.frames = host_frames_.as<std::byte>();
  }
  s.frame_memory = frames;
  s.layout = layout;
  s.queues = queues.state();
  state_ = reinterpret_cast<cache_state*>(base + state_at);

  // The memory is zeroed; zero is the initial state of everything else.
  state_memory.copy_in(state_, &s, sizeof s);
  if (outside != 0) {
    std::vector<outside_frame> const no_pages(outside, outside_frame{outside_frame::no_page, 0, 0});
    state_memory.copy_in(s.outside, no_pages.data(), no_pages.size() * sizeof(outside_frame));
  }
  std::vector<std::uint32_t> free;
  for (std::uint32_t w = 0; w < free_overflow_words; ++w) free.push_back(slot_pool::all_free(overflow, w));
  for (std::uint32_t w = 0; w < free_user_words; ++w) free.push_back(slot_pool::all_free(users, w));
  for (std::uint32_t w = 0; w < free_staging_words; ++w) {
    free.push_back(slot_pool::all_free(options.staging_pages, w));
  }
  if (!free.empty()) state_memory.copy_in(s.free_overflow.words, free.data(), free.size() * sizeof(std::uint32_t));
}

void cache::check_ref(replacement_policy const& policy, bool counted, bool shares,
                      replacement_policy const& host_policy, bool staged) const {
  if (policy.name != options_.policy.name || policy.set_bytes != options_.policy.set_bytes) {
    throw refused_input("cache.policy", policy.name, "the cache was made for '" + options_.policy.name + "'");
  }
  if (counted != options_.statistics) {
    throw refused_input("cache.statistics", options_.statistics ? "true" : "false",
                        options_.statistics ? "use traits with `counted` = true, or make the cache without statistics"
                                            : "use traits with `counted` = false, or make the cache with statistics");
  }
  if (shares != (options_.user_frames != 0)) {
    throw refused_input("cache.user_frames", std::to_string(options_.user_frames),
                        shares ? "the traits' `pools` share buffers; open the storage with cache.user_frames for them"
                               : "use traits whose `pools` share buffers: others cannot find pages in them");
  }
  check_frames(staged);
  if (host_policy.name.empty() != (options_.host_size_bytes == 0)) {
    throw refused_input("cache.host_size_bytes", std::to_string(options_.host_size_bytes),
                        !host_policy.name.empty() ? "the traits' `pools` have a host pool: open the storage with one"
                                                  : "use traits whose `pools` have the host pool's policy");
  }
  if (options_.host_size_bytes != 0 && host_policy.name != options_.host_policy.name) {
    throw refused_input("cache.host_policy", host_policy.name,
                        "the cache was made for '" + options_.host_policy.name + "'");
  }
}

void cache::check_frames(bool staged) const {
  if (staged == (options_.staging_pages != 0)) return;
  throw refused_input("cache.staging_pages", std::to_string(options_.staging_pages),
                      staged ? "the traits' `pools` have staged frames; open the storage with cache.staging_pages"
                             : "use traits whose `pools` have `staged_frames`: others would not copy the pages");
}

cache_core cache::core_copy() const {
  cache_core core;
  memory_.from().copy_out(&core, static_cast<cache_core const*>(state_), sizeof core);
  return core;
}

cache_counters cache::counted() const {
  std::vector<cache_counters> stripes(cache_core::counter_stripes);
  memory_.from().copy_out(stripes.data(), host_copy_.counters, stripes.size() * sizeof(cache_counters));
  cache_counters sum{};
  for (cache_counters const& c : stripes) {
    sum += c;
  }
  return sum;
}

void cache::reset_counters() {
  std::vector<cache_counters> const zero(cache_core::counter_stripes, cache_counters{});
  memory_.from().copy_in(host_copy_.counters, zero.data(), zero.size() * sizeof(cache_counters));
}

status cache::first_error() const {
  return cache_core::status_of(core_copy().first_error);
}
std::uint64_t cache::failed_write_backs() const {
  return core_copy().failed_write_backs;
}
access_errors cache::take_errors() {
  std::lock_guard lock(*errors_mutex_);
  auto* const there = static_cast<cache_core*>(state_);
  access_errors out;
  std::uint32_t const first = memory::peek(memory_.from(), &there->first_error);
  out.first = cache_core::status_of(first);
  if (!out.first.ok()) {
    if ((first & cache_core::of_write_back) == 0) {
      out.first_offset_bytes = memory::peek(memory_.from(), &there->first_error_byte);
    }
    // No thread changes the word while it is set. The next failure is the next first one.
    memory::poke(memory_.from(), &there->first_error, 0u);
  }
  std::uint64_t const errors =
      memory::peek(memory_.from(), &there->failed_accesses) + memory::peek(memory_.from(), &there->failed_write_backs);
  out.count = errors - errors_told_;
  errors_told_ = errors;
  // This error was set after the last call had counted it.
  if (out.count == 0 && !out.first.ok()) out.count = 1;
  return out;
}

}  // namespace forebay
