// SPDX-License-Identifier: Apache-2.0
//! \file
//! The two programs of docs/how-to/port-a-kernel.md, which must print the same.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

namespace forebay::port_a_kernel {

inline std::string output_of(int (*program)(int, char**), std::string path) {
  char name[] = "port_a_kernel";
  char* arguments[] = {name, path.data(), nullptr};
  testing::internal::CaptureStdout();
  int const result = program(2, arguments);
  std::fflush(stdout);
  std::string const printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(result, 0);
  return printed;
}

inline void expect_same_output(int (*before)(int, char**), int (*after)(int, char**)) {
  std::string const path = testing::TempDir() + "forebay_port_a_kernel_" + std::to_string(getpid()) + ".f32";
  std::vector<float> values(1 << 18);
  double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) sum += values[i] = static_cast<float>(i % 1000);
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<char const*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
  char expected[64];
  std::snprintf(expected, sizeof expected, "mean %g\n", sum / static_cast<double>(values.size()));
  EXPECT_EQ(output_of(before, path), expected);
  EXPECT_EQ(output_of(after, path), expected);
  std::remove(path.c_str());
}

}  // namespace forebay::port_a_kernel
