// SPDX-License-Identifier: Apache-2.0
// Proves that adapter files that cannot be honoured are refused by name, in one sentence.
#include "model/adapter/adapter_file.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/mapped_file.h"
#include "base/rng.h"

namespace reprise {
namespace {

std::string Config(const std::string& more, const std::string& r = "4") {
  return R"({"peft_type":"LORA","r":)" + r + R"(,"lora_alpha":8,"bias":"none")" +
         (more.empty() ? "" : "," + more) + "}";
}

// A safetensors file of F32 tensors of ones.
struct Entry {
  std::string name;
  int64_t rows = 0, cols = 0;
};
std::string Tensors(const std::vector<Entry>& entries) {
  std::string header = "{";
  size_t at = 0;
  for (const Entry& entry : entries) {
    const size_t bytes = size_t(entry.rows * entry.cols) * 4;
    header += (at == 0 ? "\"" : ",\"") + entry.name + R"(":{"dtype":"F32","shape":[)" +
              std::to_string(entry.rows) + "," + std::to_string(entry.cols) +
              R"(],"data_offsets":[)" + std::to_string(at) + "," + std::to_string(at + bytes) +
              "]}";
    at += bytes;
  }
  header += "}";
  const uint64_t size = header.size();
  std::string file(sizeof(size), '\0');
  std::memcpy(file.data(), &size, sizeof(size));
  file += header;
  for (size_t i = 0; i < at / 4; ++i) {
    const float one = 1;
    file.append(reinterpret_cast<const char*>(&one), sizeof(one));
  }
  return file;
}

const std::string kModule = "base_model.model.model.layers.0.mlp.up_proj";
std::vector<Entry> Plain(int64_t rank = 4) {
  return {{kModule + ".lora_A.weight", rank, 16}, {kModule + ".lora_B.weight", 32, rank}};
}

Result<AdapterFile> Parse(const std::string& config, const std::string& tensors) {
  return AdapterFile::ParsePeft(config, std::as_bytes(std::span(tensors)));
}

std::string Refusal(const std::string& config, const std::vector<Entry>& entries = Plain()) {
  const std::string tensors = Tensors(entries);
  const auto file = Parse(config, tensors);
  return file.ok() ? "" : file.status().message();
}

double ScaleOf(const std::string& config, int64_t rank = 4) {
  const std::string tensors = Tensors(Plain(rank));
  const auto file = Parse(config, tensors);
  EXPECT_TRUE(file.ok()) << file.status().message();
  return file.ok() ? file->products().front().scale : 0;
}

TEST(AdapterFileTest, ScalesAreThoseOfPeft) {
  EXPECT_DOUBLE_EQ(ScaleOf(Config("")), 2);
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("use_rslora":true)")), 4);
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("alpha_pattern":{"up_proj":2})")), 0.5);
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("alpha_pattern":{"p_proj":2})")), 2);  // whole parts of names
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("alpha_pattern":{"layers.1.mlp.up_proj":2})")), 2);
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("alpha_pattern":{"layers\\.[0-3]\\.mlp.*":2})")), 0.5);
  // The first that matches.
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("alpha_pattern":{"mlp.up_proj":2,"up_proj":4})")), 0.5);
  EXPECT_DOUBLE_EQ(ScaleOf(Config(R"("rank_pattern":{"up_proj":2})"), 2), 4);
}

TEST(AdapterFileTest, WhatIsNotComputedIsRefusedByName) {
  const auto names = [](const std::string& refusal, const std::string& word) {
    EXPECT_NE(refusal.find(word), std::string::npos) << "'" << refusal << "' lacks " << word;
  };
  names(Refusal(Config(R"("use_dora":true)")), "use_dora");
  names(Refusal(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"all"})"), "bias");
  names(Refusal(R"({"peft_type":"IA3","r":4,"lora_alpha":8})"), "IA3");
  names(Refusal(R"({"r":4,"lora_alpha":8})"), "peft_type");
  names(Refusal(Config(R"("modules_to_save":["lm_head"])")), "modules_to_save");
  names(Refusal(Config(R"("trainable_token_indices":[1])")), "trainable_token_indices");
  names(Refusal(Config(R"("layer_replication":[[0,1]])")), "layer_replication");
  names(Refusal(Config(R"("fan_in_fan_out":true)")), "fan_in_fan_out");
  names(Refusal(Config(R"("init_lora_weights":"pissa")")), "pissa");
  names(Refusal(Config(R"("what_comes_next":{"a":1})")), "what_comes_next");
  names(Refusal(Config("", "0")), "'r'");
  names(Refusal(Config("", "4.5")), "'r'");
  names(Refusal(Config(R"("rank_pattern":{"(":1})")), "rank_pattern");
  names(Refusal(Config("", "8")), "rank");
  const auto with = [](const Entry& entry) {
    std::vector<Entry> entries = Plain();
    entries.push_back(entry);
    return entries;
  };
  names(Refusal(Config(""), with({kModule + ".lora_magnitude_vector", 1, 32})), "DoRA");
  names(Refusal(Config(""), with({kModule + ".lora_B.bias", 1, 32})), "bias");
  names(Refusal(Config(""), with({"base_model.model.embed.lora_embedding_A", 4, 32})), "only one");
  names(Refusal(Config(""), with({"base_model.model.lm_head.weight", 4, 32})), "lm_head");
  names(Refusal(Config(""), {Plain()[0]}), "only one");
  names(Refusal(Config(""), {Plain()[0], {kModule + ".lora_B.weight", 32, 3}}), "ranks");
}

TEST(AdapterFileTest, BrokenFilesAreRefusedInOneSentence) {
  const std::string good = Tensors(Plain());
  ASSERT_TRUE(Parse(Config(""), good).ok());
  Rng rng(3);
  for (int i = 0; i < 2000; ++i) {
    std::string tensors = good, config = Config(R"("alpha_pattern":{"up_proj":2})");
    std::string& text = rng.Below(2) == 0 ? tensors : config;
    for (uint64_t n = rng.Below(4); n > 0; --n) {
      text[rng.Below(std::min<uint64_t>(text.size(), 260))] = char(rng.Below(256));
    }
    if (rng.Below(4) == 0) text.resize(rng.Below(text.size()));
    const auto file = Parse(config, tensors);
    if (!file.ok()) {
      EXPECT_FALSE(file.status().message().empty());
    }
  }
}

}  // namespace
}  // namespace reprise
