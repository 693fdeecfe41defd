// SPDX-License-Identifier: Apache-2.0
// Proves that the rows of a planned tensor are found wherever a checkpoint may have them: under
// their own name, in a tensor per slice, in parts of a larger one, transposed; and that what is
// missing or does not fit is refused with the name.
#include "model/planned_source.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace reprise {
namespace {

// A folder whose tensors hold 0, 1, 2, ... in f32.
class PlannedSourceTest : public ::testing::Test {
 protected:
  PlannedSourceTest()
      : folder_(::testing::TempDir() + "planned_source_" + std::to_string(::getpid())) {
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/config.json") << R"({"model_type": "test"})";
  }
  ~PlannedSourceTest() override { std::filesystem::remove_all(folder_); }

  struct Entry {
    std::string name;
    std::vector<int64_t> shape;
  };
  void Write(const std::vector<Entry>& entries) {
    std::string header = "{";
    std::vector<float> values;
    for (const Entry& entry : entries) {
      int64_t count = 1;
      std::string shape;
      for (const int64_t extent : entry.shape) {
        count *= extent;
        shape += (shape.empty() ? "" : ", ") + std::to_string(extent);
      }
      const size_t begin = values.size() * sizeof(float);
      for (int64_t i = 0; i < count; ++i) values.push_back(float(i));
      header += (header == "{" ? "" : ", ") + ("\"" + entry.name) +
                R"(": {"dtype": "F32", "shape": [)" + shape + R"(], "data_offsets": [)" +
                std::to_string(begin) + ", " + std::to_string(values.size() * sizeof(float)) + "]}";
    }
    header += "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t size = header.size();
    std::ofstream out(folder_ + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&size), sizeof(size));
    out << header;
    out.write(reinterpret_cast<const char*>(values.data()),
              std::streamsize(values.size() * sizeof(float)));
  }

  // All rows of the planned tensor, or the message of the refusal.
  std::vector<float> Read(const PlannedTensor& tensor) {
    message_.clear();
    const auto checkpoint = OpenCheckpoint(folder_);
    CHECK(checkpoint.ok());
    const auto source = PlannedSource::Find(*checkpoint, tensor);
    if (!source.ok()) {
      message_ = source.status().message();
      return {};
    }
    std::vector<float> values(size_t(tensor.element_count()));
    for (int64_t row = 0; row < tensor.row_count(); ++row) {
      source->ReadRow(row, DType::kF32,
                      reinterpret_cast<std::byte*>(values.data() + row * tensor.cols));
    }
    return values;
  }

  std::string folder_;
  std::string message_;
  TensorPlan plan_{"model."};
  Matrix matrix_;
  Matrix stack_;
};

using Values = std::vector<float>;

TEST_F(PlannedSourceTest, OwnNameAndPerSlice) {
  Write({{"model.layers.0.w", {2, 3}}, {"e.0.w", {1, 2}}, {"e.1.w", {1, 2}}});
  EXPECT_EQ(Read(plan_.AddMatrix(plan_.Layer(0, "w", "w"), 2, 3, &matrix_)),
            (Values{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(Read(plan_.AddStack({"e.{}.w", "w"}, 2, 1, 2, &stack_)), (Values{0, 1, 0, 1}));
  Read(plan_.AddStack({"e.{}.w", "w"}, 3, 1, 2, &stack_));
  EXPECT_NE(message_.find("e.2.w"), std::string::npos) << message_;
  Read(plan_.AddStack({"e.{}.w", "w"}, 2, 2, 2, &stack_));
  EXPECT_NE(message_.find("e.0.w"), std::string::npos) << message_;
}

// Two experts in one tensor [2, 2 + 2, 3], gate first: up is the second half of each.
TEST_F(PlannedSourceTest, ExpertsInOnePiece) {
  Write({{"gate_up", {2, 4, 3}}});
  PlannedTensor& up = plan_.AddStack({"e.{}.up", "up"}, 2, 2, 3, &stack_);
  up.fused = {"gate_up", "", 8, {{2, 2, 2, 4}}};
  EXPECT_EQ(Read(up), (Values{6, 7, 8, 9, 10, 11, 18, 19, 20, 21, 22, 23}));
  up.fused.rows = 6;
  EXPECT_TRUE(Read(up).empty());
  EXPECT_NE(message_.find("gate_up"), std::string::npos) << message_;
  up.fused.hf = "absent";
  EXPECT_TRUE(Read(up).empty());
  EXPECT_NE(message_.find("e.0.up"), std::string::npos) << message_;
}

// Per head of 1 + 1 + 2 rows: q, k, v; all q, then all k, then all v are wanted.
TEST_F(PlannedSourceTest, PartsByHead) {
  Write({{"qkv", {8, 1}}});
  PlannedTensor& tensor = plan_.AddMatrix({"", "qkv"}, 8, 1, &matrix_);
  tensor.fused = {"qkv", "", 8, {{2, 1, 0, 4}, {2, 1, 1, 4}, {2, 2, 2, 4}}};
  EXPECT_EQ(Read(tensor), (Values{0, 4, 1, 5, 2, 3, 6, 7}));
}

// What makes the keys of a head is [2, 3] in the file, beside one row for its values; wanted
// [3, 2].
TEST_F(PlannedSourceTest, TurnedSlices) {
  Write({{"kv_b", {6, 3}}});
  PlannedTensor& keys = plan_.AddStack({"", "k_b"}, 2, 3, 2, &stack_);
  keys.fused = {"kv_b", "", 6, {{2, 2, 0, 3}}, true};
  EXPECT_EQ(Read(keys), (Values{0, 3, 1, 4, 2, 5, 9, 12, 10, 13, 11, 14}));
}

}  // namespace
}  // namespace reprise
