// SPDX-License-Identifier: Apache-2.0
#include "apps/recommender/trace.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>
#include <utility>

#include "apps/common/random.hpp"
#include "forebay/error.hpp"

namespace forebay::recommender {

static_assert(std::endian::native == std::endian::little, "the file format is that of the machine");

namespace {

constexpr char magic[8] = {'F', 'B', 'D', 'L', 'R', 'M', '0', '1'};

/// rank * factor + shift modulo the size: a bijection, since factor and size have no divisor in common.
struct scattering {
  std::uint64_t factor, shift, size;

  scattering(std::uint64_t seed, std::uint64_t rows) : shift(apps::mix64(seed + 1) % rows), size(rows) {
    factor = apps::mix64(seed) % rows;
    while (std::gcd(factor, rows) != 1) factor = (factor + 1) % rows;
  }
  std::uint32_t operator()(std::uint64_t rank) const {
    return static_cast<std::uint32_t>((rank * factor + shift) % size);
  }
};

class reader {
 public:
  explicit reader(std::string const& path) : path_(path), file_(path, std::ios::binary) {
    if (!file_) throw refused_input("trace", path, "cannot be opened");
  }
  template <class T>
  void read(std::span<T> to) {
    file_.read(reinterpret_cast<char*>(to.data()), static_cast<std::streamsize>(to.size_bytes()));
    if (!file_) throw refused_input("trace", path_, "ends too early; make the trace again");
  }
  template <class T>
  T read() {
    T value;
    read(std::span(&value, 1));
    return value;
  }

 private:
  std::string const& path_;
  std::ifstream file_;
};

}  // namespace

std::uint64_t dlrm_trace::rows_of_all_tables() const {
  return std::accumulate(table_rows.begin(), table_rows.end(), std::uint64_t{0});
}

std::vector<std::uint32_t> dlrm_trace::rows_in_one_table() const {
  if (rows_of_all_tables() > 0xffffffff) {
    throw refused_input("rows", std::to_string(rows_of_all_tables()),
                        "all tables together must have fewer than 2^32 rows; give fewer");
  }
  std::vector<std::uint32_t> first(table_rows.size());
  std::exclusive_scan(table_rows.begin(), table_rows.end(), first.begin(), 0u);
  std::vector<std::uint32_t> numbers(rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) numbers[i] = first[i % first.size()] + rows[i];
  return numbers;
}

std::vector<std::uint32_t> criteo_table_rows() {
  return {1460, 583,   10131227, 2202608, 305,  24,   12517, 633,     3,  93145, 5683,   8351593, 3194,
          27,   14992, 5461306,  10,      5652, 2173, 4,     7046547, 18, 15,    286181, 105,     142572};
}

dlrm_trace make_zipf_trace(zipf_options const& options) {
  if (options.exponent <= 0 || options.exponent == 1) {
    throw refused_input("exponent", std::to_string(options.exponent), "must be greater than 0, and not 1");
  }
  if (options.table_rows.empty()) throw refused_input("tables", "0", "must be at least 1");
  dlrm_trace trace{"zipf", options.dense, options.table_rows, {}, {}};
  std::vector<scattering> places;
  std::vector<double> last;  // of the integral, at the end of each table
  double const power = 1 - options.exponent;
  for (std::uint32_t& rows : trace.table_rows) {
    rows = std::min(rows, options.rows_max);
    if (rows == 0) throw refused_input("rows", "0", "must be at least 1 in every table");
    places.emplace_back(options.seed + places.size() * 1000, rows);
    last.push_back(std::pow(rows + 1.0, power) - 1);
  }
  apps::splitmix64 draws(options.seed, 0);
  auto const uniform = [&] { return static_cast<double>(draws.next() >> 11) * 0x1p-53; };
  trace.dense_values.resize(options.samples * options.dense);
  for (float& v : trace.dense_values) v = static_cast<float>(uniform());
  trace.rows.reserve(options.samples * trace.tables());
  for (std::uint64_t s = 0; s < options.samples; ++s) {
    for (std::uint32_t t = 0; t < trace.tables(); ++t) {
      double const x = std::pow(1 + uniform() * last[t], 1 / power);
      auto const rank = std::min<std::uint64_t>(static_cast<std::uint64_t>(x) - 1, trace.table_rows[t] - 1);
      trace.rows.push_back(places[t](rank));
    }
  }
  return trace;
}

dlrm_trace read_trace(std::string const& path) {
  reader file(path);
  char found[sizeof magic];
  file.read(std::span<char>(found));
  if (std::memcmp(found, magic, sizeof magic) != 0) throw refused_input("trace", path, "is not a DLRM trace; give one");
  dlrm_trace trace;
  trace.source = path;
  trace.dense = file.read<std::uint32_t>();
  auto const tables = file.read<std::uint32_t>();
  auto const samples = file.read<std::uint64_t>();
  if (tables == 0 || tables > 1024 || trace.dense > 1024 || samples > std::uint64_t{1} << 32) {
    throw refused_input("trace", path, "has a header with numbers that no trace has; make the trace again");
  }
  std::uint64_t const bytes = sizeof magic + 16 + 4 * (tables + samples * (trace.dense + std::uint64_t{tables}));
  if (std::filesystem::file_size(path) != bytes) {
    throw refused_input("trace", path, "has another size than its header says, " + std::to_string(bytes) + " bytes");
  }
  trace.table_rows.resize(tables);
  file.read(std::span(trace.table_rows));
  trace.dense_values.resize(samples * trace.dense);
  file.read(std::span(trace.dense_values));
  trace.rows.resize(samples * tables);
  file.read(std::span(trace.rows));
  for (std::size_t i = 0; i < trace.rows.size(); ++i) {
    if (trace.rows[i] < trace.table_rows[i % tables]) continue;
    throw refused_input("trace", path,
                        "sample " + std::to_string(i / tables) + " asks for a row that table " +
                            std::to_string(i % tables) + " does not have");
  }
  return trace;
}

void write_trace(dlrm_trace const& trace, std::string const& path) {
  std::ofstream file(path, std::ios::binary);
  auto const write = [&]<class T>(std::span<T const> from) {
    file.write(reinterpret_cast<char const*>(from.data()), static_cast<std::streamsize>(from.size_bytes()));
  };
  std::uint32_t const shape[] = {trace.dense, trace.tables()};
  std::uint64_t const samples[] = {trace.samples()};
  write(std::span<char const>(magic));
  write(std::span<std::uint32_t const>(shape));
  write(std::span<std::uint64_t const>(samples));
  write(std::span<std::uint32_t const>(trace.table_rows));
  write(std::span<float const>(trace.dense_values));
  write(std::span<std::uint32_t const>(trace.rows));
  if (!file.flush()) throw refused_input("trace", path, "cannot be written");
}

}  // namespace forebay::recommender
