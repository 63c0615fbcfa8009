// SPDX-License-Identifier: Apache-2.0
#include "apps/graph_lists/lists.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "apps/graph/sssp.hpp"
#include "apps/graph_lists/placed_lists.hpp"
#include "forebay/error.hpp"
#include "forebay/host_memory.hpp"
#include "forebay/machine.hpp"
#include "forebay/status_text.hpp"

namespace forebay::graph {
namespace {

/// A run of neighbours is at most 32768 long (`bfs_paging`).
constexpr std::uint64_t request_bytes_max = 128 << 10;
constexpr std::size_t alignment_bytes = 4096;

template <class Value>
void refuse_unless(bool holds, char const* field, Value const& value, std::string const& remedy) {
  if (!holds) throw refused_input(field, fmt::format("{}", value), remedy);
}

void validate(csr_lists const& graph) {
  auto const& rows = graph.row_begin;
  refuse_unless(rows.size() >= 2 && rows.size() - 1 < bfs_unreached, "vertices", rows.empty() ? 0 : rows.size() - 1,
                "must be 1 to 2^32 - 2");
  refuse_unless(rows[0] == 0 && std::is_sorted(rows.begin(), rows.end()), "row_begin", rows[0],
                "must begin with 0 and never fall");
  // A frontier numbers entries with 48 bits. It also keeps their bytes below 2^64.
  refuse_unless(rows.back() < std::uint64_t{1} << 48, "row_begin", rows.back(), "must end below 2^48 entries");
}

/// Calls `with(std::type_identity<M>)` for the machine that reads the lists.
template <class With>
auto on_machine([[maybe_unused]] int gpu, With&& with) {
#ifdef FOREBAY_HAS_CUDA
  if (gpu >= 0) return with(std::type_identity<simt::cuda>());
#endif
  return with(std::type_identity<simt::fiber>());
}

/// Where lists in memory lie. Throws `refused_input` if they cannot lie there.
memory::resource& resource_of(lists_in_memory const& where, std::uint64_t bytes) {
  bool const on_gpu = where.gpu >= 0;
  refuse_unless(!on_gpu || where.gpu < memory::device_count(), "device", fmt::format("cuda:{}", where.gpu),
                "must be a GPU that this process can use: see `forebay doctor`");
  refuse_unless(where.node < 0 || where.place == memory_place::host, "node", where.node,
                "only host memory has a NUMA node: leave it out, or use host");
  if (where.place == memory_place::hbm || where.place == memory_place::uvm) {
    char const* const name = where.place == memory_place::hbm ? "hbm" : "uvm";
    refuse_unless(on_gpu, "memory", name, "needs a GPU: use host, or external with a model of memory");
    std::uint64_t const free = memory::free_bytes(where.gpu);
    refuse_unless(bytes <= free, "memory", name,
                  fmt::format("the lists have {} bytes, and the GPU has {} free: use host or storage", bytes, free));
    return where.place == memory_place::hbm ? memory::device(where.gpu) : memory::managed(where.gpu);
  }
  if (!on_gpu) return memory::host();
  if (where.place == memory_place::external && where.external.mode == memory::external_mode::device) {
    std::uint64_t const free = memory::free_bytes(where.gpu);
    refuse_unless(bytes <= free, "memory", "external",
                  fmt::format("the lists have {} bytes, and the GPU has {} free: add mode=pinned", bytes, free));
    return memory::device(where.gpu);
  }
  return where.node < 0 ? memory::pinned() : memory::pinned_on(where.node);
}

memory::allocation copied(memory::resource& to, std::span<std::byte const> bytes, int node) {
  memory::allocation copy(to, std::max<std::size_t>(bytes.size(), 1), alignment_bytes);
  if (node >= 0 && to.kind() == memory::kind::host) memory::bind_to_node(copy.data(), copy.size_bytes(), node);
  if (!bytes.empty()) to.copy_in(copy.data(), bytes.data(), bytes.size());
  return copy;
}

/// Throws what an algorithm found wrong.
void check(placed_lists const& placed, run_errors const& errors) {
  apps::failure_latch const& failure = errors.lists.failure;
  if (failure.failures != 0) {
    throw operation_failed(fmt::format("{} reads failed, one of them with {}", failure.failures,
                                       to_string(status::from_bits(failure.status_bits))));
  }
  std::string const remedy = placed.drives == nullptr ? "" : ": write the edge list again";
  auto const no_vertex = [&](std::uint64_t id) {
    return operation_failed(
        fmt::format("the lists hold neighbour {}, the graph has {} vertices{}", id, placed.vertices(), remedy));
  };
  if (errors.lists.vertices.count != 0) throw no_vertex(errors.lists.vertices.first);
  if (errors.bad_neighbour != 0) throw no_vertex(errors.bad_neighbour);
  if (errors.weights.count != 0) {
    throw operation_failed(
        fmt::format("the lists hold weight {}, which is not below 2^31{}", errors.weights.first, remedy));
  }
  if (errors.descents != 0) {
    throw operation_failed(
        fmt::format("the lists are not sorted: {} neighbours are less than the one before{}", errors.descents, remedy));
  }
}

void require_entry(placed_lists const& placed, entry_kind wanted, char const* algorithm) {
  constexpr char const* names[] = {"id", "wide_id", "weighted"};
  refuse_unless(placed.entry == wanted, "entry", names[static_cast<int>(placed.entry)],
                fmt::format("{} needs lists of {}", algorithm, names[static_cast<int>(wanted)]));
}

void require_vertex(placed_lists const& placed, std::uint32_t source) {
  refuse_unless(source < placed.vertices(), "source", source,
                fmt::format("must be a vertex, 0 to {}", placed.vertices() - 1));
}

template <class T>
void require_all(placed_lists const& placed, char const* field, std::span<T const> values) {
  refuse_unless(values.size() == placed.vertices(), field, values.size(),
                fmt::format("must have one element for each of the {} vertices", placed.vertices()));
}

void require_memory(placed_lists const& placed) {
  refuse_unless(placed.drives == nullptr, "memory", "storage", "a check reads lists in memory");
}

}  // namespace

std::uint32_t bytes_of(entry_kind entry) {
  return entry == entry_kind::id ? 4 : 8;
}

std::optional<drive_reads> reads_of(storage const& drives) {
  drive_reads all;
  auto const report = nlohmann::json::parse(drives.report());
  for (auto const& drive : report.at("drives")) {
    auto const counted = drive.find("statistics");
    if (counted == drive.end() || !counted->is_object()) return std::nullopt;
    all.commands += counted->at("read_commands").get<std::uint64_t>();
    all.bytes += counted->at("bytes_read").get<std::uint64_t>();
  }
  return all;
}

lists::lists(csr_lists const& graph, lists_in_memory const& where) : placed_(std::make_unique<placed_lists>()) {
  validate(graph);
  std::uint64_t const count = graph.row_begin.back();
  refuse_unless(
      graph.entries.size() == count * bytes_of(graph.entry), "entries", graph.entries.size(),
      fmt::format("must have {} bytes: {} entries of {}", count * bytes_of(graph.entry), count, bytes_of(graph.entry)));
  refuse_unless(graph.values.empty() || graph.values.size() == count, "values", graph.values.size(),
                fmt::format("must have one for each of the {} entries", count));
  placed_lists& placed = *placed_;
  placed.row_begin.assign(graph.row_begin.begin(), graph.row_begin.end());
  placed.entry = graph.entry;
  placed.gpu = where.gpu;
  placed.has_values = !graph.values.empty();
  placed.is_far = where.gpu >= 0 && (where.place == memory_place::host || where.place == memory_place::uvm);
  if (where.place == memory_place::external) {
    where.external.validate();
    placed.external = where.external;
  }
  auto const values = std::as_bytes(graph.values);
  memory::resource& to = resource_of(where, graph.entries.size() + values.size());
  placed.entries_in_memory = copied(to, graph.entries, where.node);
  placed.values_in_memory = copied(to, values, where.node);
}

lists::lists(csr_lists const& graph, storage& drives, lists_on_drives const& where)
    : placed_(std::make_unique<placed_lists>()) {
  validate(graph);
  refuse_unless(graph.entry != entry_kind::wide_id, "entry", "wide_id", "lists on drives have ids of 4 bytes");
  placed_lists& placed = *placed_;
  placed.row_begin.assign(graph.row_begin.begin(), graph.row_begin.end());
  placed.entry = graph.entry;
  placed.gpu = drives.on_gpu() ? drives.gpu_ordinal() : -1;
  placed.has_values = where.values.has_value();
  placed.drives = &drives;
  placed.on_drives = where;
  std::uint64_t const count = graph.row_begin.back();
  auto const require_room = [&](extent const& part, std::uint64_t each) {
    refuse_unless(count * each <= part.size_bytes, "extent", part.name,
                  fmt::format("has {} bytes, and {} entries need {}; write the edge list again", part.size_bytes, count,
                              count * each));
  };
  require_room(where.entries, bytes_of(graph.entry));
  if (where.values) require_room(*where.values, sizeof(float));

  auto const cache = nlohmann::json::parse(drives.report()).at("cache");
  if (cache.is_object()) {
    placed.cache_page_bytes = cache.at("page_bytes").get<std::uint32_t>();
    placed.cache_frames = cache.at("bytes").get<std::uint64_t>() / placed.cache_page_bytes;
    return;
  }
  std::uint64_t const block = drives.block_bytes();
  std::uint64_t& request = placed.on_drives.request_bytes;
  if (request == 0) request = block;
  refuse_unless(
      request >= block && request <= request_bytes_max && std::has_single_bit(request), "request_bytes", request,
      fmt::format("must be the drive's block, {} bytes, times a power of two, at most {}", block, request_bytes_max));
  refuse_unless(where.iodepth >= 1 && where.iodepth <= 1u << 20, "--iodepth", where.iodepth, "must be 1 to 1048576");
}

lists::lists(lists&&) noexcept = default;
lists& lists::operator=(lists&&) noexcept = default;
lists::~lists() = default;

void lists::make_cold() {
  on_machine(placed_->gpu, [&](auto m) { make_lists_cold<typename decltype(m)::type>(*placed_); });
}

found_bfs lists::bfs(std::uint32_t source, bfs_direction how, level_listener const& tell) {
  refuse_unless(placed_->entry != entry_kind::weighted, "entry", "weighted", "bfs needs lists of ids");
  require_vertex(*placed_, source);
  found_bfs found;
  check(*placed_, on_machine(placed_->gpu, [&](auto m) {
    return run_bfs_on<typename decltype(m)::type>(*placed_, source, how, tell, found);
  }));
  return found;
}

found_bfs lists::plain_bfs(std::uint32_t source) {
  require_entry(*placed_, entry_kind::id, "plain_bfs");
  refuse_unless(placed_->drives == nullptr || placed_->cache_page_bytes != 0, "memory", "storage_direct",
                "a plain search reads through a cache: open the storage with one");
  require_vertex(*placed_, source);
  found_bfs found;
  run_errors errors = on_machine(
      placed_->gpu, [&](auto m) { return run_plain_bfs_on<typename decltype(m)::type>(*placed_, source, found); });
  if (placed_->drives != nullptr) {
    access_errors const failed = placed_->drives->take_errors();
    if (failed.count != 0) {
      errors.lists.failure = {failed.first.bits(), static_cast<std::uint32_t>(failed.count)};
    }
  }
  check(*placed_, errors);
  return found;
}

found_sssp lists::sssp(std::uint32_t source, std::uint32_t delta) {
  require_entry(*placed_, entry_kind::weighted, "sssp");
  require_vertex(*placed_, source);
  found_sssp found;
  check(*placed_, on_machine(placed_->gpu, [&](auto m) {
    return run_sssp_on<typename decltype(m)::type>(*placed_, source, delta, found);
  }));
  return found;
}

found_pagerank lists::pagerank(std::span<std::uint32_t const> outgoing, pagerank_options const& options) {
  require_entry(*placed_, entry_kind::id, "pagerank");
  if (!outgoing.empty()) require_all(*placed_, "outgoing", outgoing);
  found_pagerank found;
  check(*placed_, on_machine(placed_->gpu, [&](auto m) {
    return run_pagerank_on<typename decltype(m)::type>(*placed_, outgoing, options, found);
  }));
  return found;
}

found_components lists::components() {
  require_entry(*placed_, entry_kind::id, "components");
  found_components found;
  check(*placed_, on_machine(placed_->gpu,
                             [&](auto m) { return run_components_on<typename decltype(m)::type>(*placed_, found); }));
  return found;
}

found_triangles lists::triangles() {
  require_entry(*placed_, entry_kind::id, "triangles");
  found_triangles found;
  check(*placed_, on_machine(placed_->gpu,
                             [&](auto m) { return run_triangles_on<typename decltype(m)::type>(*placed_, found); }));
  return found;
}

found_product lists::multiply(std::span<float const> x) {
  require_entry(*placed_, entry_kind::id, "spmv");
  require_all(*placed_, "x", x);
  found_product found;
  check(*placed_, on_machine(placed_->gpu,
                             [&](auto m) { return run_product_on<typename decltype(m)::type>(*placed_, x, found); }));
  return found;
}

std::uint64_t lists::wrong_in_bfs(std::uint32_t source, std::span<std::uint32_t const> distances,
                                  std::span<std::uint32_t const> predecessors) {
  require_memory(*placed_);
  require_vertex(*placed_, source);
  require_all(*placed_, "distances", distances);
  require_all(*placed_, "predecessors", predecessors);
  return on_machine(placed_->gpu, [&](auto m) {
    return wrong_in_bfs_on<typename decltype(m)::type>(*placed_, source, distances, predecessors);
  });
}

std::uint64_t lists::wrong_in_sssp(std::uint32_t source, std::span<std::uint64_t const> distances,
                                   std::span<std::uint32_t const> predecessors) {
  require_memory(*placed_);
  require_entry(*placed_, entry_kind::weighted, "sssp");
  require_vertex(*placed_, source);
  require_all(*placed_, "distances", distances);
  require_all(*placed_, "predecessors", predecessors);
  return on_machine(placed_->gpu, [&](auto m) {
    return wrong_in_sssp_on<typename decltype(m)::type>(*placed_, source, distances, predecessors);
  });
}

std::uint64_t lists::wrong_in_components(std::span<std::uint32_t const> labels) {
  require_memory(*placed_);
  require_entry(*placed_, entry_kind::id, "components");
  require_all(*placed_, "labels", labels);
  return on_machine(placed_->gpu,
                    [&](auto m) { return wrong_in_components_on<typename decltype(m)::type>(*placed_, labels); });
}

double lists::residual_of_pagerank(std::span<std::uint32_t const> outgoing, std::span<float const> scores,
                                   pagerank_options const& options) {
  require_memory(*placed_);
  require_entry(*placed_, entry_kind::id, "pagerank");
  if (!outgoing.empty()) require_all(*placed_, "outgoing", outgoing);
  require_all(*placed_, "scores", scores);
  return on_machine(placed_->gpu, [&](auto m) {
    return residual_of_pagerank_on<typename decltype(m)::type>(*placed_, outgoing, scores, options);
  });
}

}  // namespace forebay::graph
