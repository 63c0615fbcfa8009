// SPDX-License-Identifier: Apache-2.0
//! \file
//! The input of a recommender: for each sample a few dense features, and one row of each of several tables.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace forebay::recommender {

struct dlrm_trace {
  std::string source;                     ///< `zipf`, or the file
  std::uint32_t dense = 0;                ///< features of a sample
  std::vector<std::uint32_t> table_rows;  ///< of each table
  std::vector<float> dense_values;        ///< [sample][feature]
  std::vector<std::uint32_t> rows;        ///< [sample][table]

  std::uint32_t tables() const { return static_cast<std::uint32_t>(table_rows.size()); }
  std::uint64_t samples() const { return table_rows.empty() ? 0 : rows.size() / table_rows.size(); }
  std::uint64_t rows_of_all_tables() const;
  /// The same as numbers of rows in one table that holds all tables, one after the other. Throws `refused_input` if 32
  /// bits cannot count them.
  std::vector<std::uint32_t> rows_in_one_table() const;
};

/// Distinct values of the 26 categorical features of the Criteo display advertising challenge (Kaggle, 2014), as the
/// DLRM repository has them in its example (`--arch-embedding-size`).
std::vector<std::uint32_t> criteo_table_rows();

struct zipf_options {
  std::uint64_t samples = 0;
  std::uint32_t dense = 13;
  std::vector<std::uint32_t> table_rows = criteo_table_rows();
  std::uint32_t rows_max = ~0u;  ///< larger tables are cut to this
  double exponent = 1.05;        ///< greater than 0, and not 1
  std::uint64_t seed = 1;
};

/// Synthetic: the k-th most wanted row of a table is asked for in proportion to the integral of x^-exponent from k to
/// k + 1. Where in the table it lies is random. Throws `refused_input`.
dlrm_trace make_zipf_trace(zipf_options const& options);

/// The format is little-endian: the 8 bytes `FBDLRM01`; u32 dense, tables; u64 samples; u32 rows of each table; f32
/// [samples][dense]; u32 [samples][tables]. Both throw `refused_input`; reading checks every row.
dlrm_trace read_trace(std::string const& path);
void write_trace(dlrm_trace const& trace, std::string const& path);

}  // namespace forebay::recommender
