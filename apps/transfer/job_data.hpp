// SPDX-License-Identifier: Apache-2.0
//! \file
//! What the jobs of a pipeline share on the host: one input, and places for results, which are checked there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/transfer/modes.hpp"
#include "apps/transfer/workload.hpp"

namespace forebay::transfer {

/// The input stays as it is: results go elsewhere, also those of buffers that are read and written. Scratch buffers
/// have a place among the results, because some checks look at them. Not thread-safe.
class job_data {
 public:
  using allocator = std::function<std::shared_ptr<std::byte>(std::uint64_t bytes)>;

  /// Memory comes from `make`, which throws `operation_failed` where there is none. `work` must outlive this.
  job_data(workload const& work, std::uint64_t seed, allocator make);

  /// Makes the input, and as many places for results, at least one, unless they are there.
  void prepare(std::uint32_t places);
  std::vector<buffer> const& buffers() const { return buffers_; }
  /// Of a buffer that goes in.
  std::byte const* input(std::size_t buffer) const { return inputs_[buffer].get(); }
  /// Of a buffer that is not only read.
  std::byte* output(std::uint32_t place, std::size_t buffer) const { return outputs_[place][buffer].get(); }

  /// Overwrites the results there, so that results that never come are missed.
  void forget(std::uint32_t place);
  /// "" if the results there are right. All jobs compute the same. So results that equal the first right ones are not
  /// compared with the reference again; their hashes of 64 bits are compared. `to_the_bit`: results that differ from
  /// those are wrong, even if the reference, which may look at samples only, has no objection. Not where buffers have
  /// bytes that no kernel writes and nothing overwrote before.
  std::string mismatch(std::uint32_t place, bool to_the_bit);
  /// How many results were compared with the reference.
  std::uint32_t compared() const { return compared_; }

 private:
  std::uint64_t hash_of(std::uint32_t place) const;

  workload const& work_;
  std::uint64_t seed_;
  allocator make_;
  std::vector<buffer> buffers_;
  std::vector<std::shared_ptr<std::byte>> inputs_;
  std::vector<std::vector<std::shared_ptr<std::byte>>> outputs_;
  std::optional<std::uint64_t> right_;  ///< the hash of results that are right
  std::uint32_t compared_ = 0;
};

}  // namespace forebay::transfer
