// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/mapped_file.h"
#include "kernels/make_backend.h"
#include "model/model_fixture.h"
#include "model/vision/seen_picture.h"
#include "model/vision/tower.h"

// What tests of models that see share.
namespace reprise {

// The device that the law is proved on (model/law_test.cc).
inline std::string LawDevice() {
  const char* device = std::getenv("REPRISE_LAW_DEVICE");
  return device == nullptr ? "cpu" : device;
}

class LawMachine {
 public:
  explicit LawMachine(int threads) : backend_(Make(threads)), scratch_(backend_->memory()) {}
  OpContext context() { return {backend_.get(), &scratch_}; }

 private:
  static std::unique_ptr<Backend> Make(int threads) {
    auto backend = MakeBackend({LawDevice(), threads, 0});
    CHECK(backend.ok());
    return std::move(*backend);
  }

  const std::unique_ptr<Backend> backend_;
  ScratchArena scratch_;
};

// A tiny model that sees (tools/golden/make_vision.py).
struct SeeingGolden {
  const char* name;
  TokenId picture_token;

  std::string folder() const { return std::string("tests/vision/") + name; }
  std::string mmproj() const { return folder() + "/mmproj.gguf"; }
};
inline constexpr SeeingGolden kSeeingQwen = {"qwen3_5", 258};
inline constexpr SeeingGolden kSeeingGemma3 = {"gemma3", 260};
// With a file of the tower (mmproj).
inline constexpr SeeingGolden kSeeingFiles[] = {
    kSeeingQwen, {"qwen3_vl", 258}, kSeeingGemma3, {"gemma4", 260}, {"gemma4_small", 260}};
inline constexpr SeeingGolden kSeeingGoldens[] = {kSeeingQwen,           {"qwen3_vl", 258},
                                                  {"qwen3_vl_moe", 258}, kSeeingGemma3,
                                                  {"gemma4", 260},       {"gemma4_small", 260}};

inline std::string ReadFile(const std::string& path) {
  const auto file = MappedFile::Open(path);
  CHECK(file.ok());
  return {reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size()};
}

inline std::vector<float> Look(const VisionTower& tower, const OpContext& context,
                               const Pixels& pixels) {
  auto look = tower.Begin(context, pixels);
  CHECK(look.ok());
  for (bool done = false; !done;) {
    const auto advanced = (*look)->Advance(context);
    CHECK(advanced.ok());
    done = *advanced;
  }
  const DeviceBuffer vectors = (*look)->TakeVectors();
  std::vector<float> values(vectors.size() / sizeof(float));
  context.backend->memory().DownloadArray<float>(std::span(values),
                                                 vectors.data().As<const float>());
  return values;
}

inline std::unique_ptr<Model> LoadSeeing(const OpContext& context, const Checkpoint& checkpoint,
                                         const Checkpoint* mmproj, DType kv = DType::kF32) {
  LoadOptions options;
  options.kv = kv;
  options.tower = true;
  options.mmproj = mmproj;
  auto model = LoadModel(checkpoint, context, options);
  if (!model.ok()) ADD_FAILURE() << model.status().message();
  CHECK(model.ok() && (*model)->tower() != nullptr);
  return std::move(*model);
}

inline std::unique_ptr<Model> LoadSeeing(const OpContext& context, const SeeingGolden& golden,
                                         DType kv = DType::kF32) {
  const auto checkpoint = OpenCheckpoint(golden.folder());
  CHECK(checkpoint.ok());
  return LoadSeeing(context, *checkpoint, nullptr, kv);
}

inline std::shared_ptr<const SeenPicture> See(const Model& model, const std::string& path) {
  auto seen = SeePicture(model.tower()->card(), ReadFile(path));
  CHECK(seen.ok());
  return *seen;
}

inline std::vector<float> ReadFloats(const SafetensorsFile& file, const std::string& name) {
  const StoredTensor* tensor = file.Find(name);
  CHECK(tensor != nullptr && tensor->dtype == DType::kF32);
  std::vector<float> values(size_t(tensor->shape.elements()));
  std::memcpy(values.data(), tensor->bytes.data(), tensor->bytes.size());
  return values;
}

// Rows that the file has of all logits.
inline std::vector<float> EveryRow(const SafetensorsFile& file, const std::vector<float>& logits,
                                   size_t vocab) {
  if (file.Find("stride") == nullptr) return logits;
  const auto stride = size_t((*file.ReadIds("stride"))[0]);
  const size_t rows = logits.size() / vocab;
  std::vector<float> some;
  for (size_t row = (rows - 1) % stride; row < rows; row += stride) {
    some.insert(some.end(), logits.begin() + ptrdiff_t(row * vocab),
                logits.begin() + ptrdiff_t((row + 1) * vocab));
  }
  return some;
}

// The largest error, as a part of how much the wanted values differ.
inline double WorstOf(const std::vector<float>& values, const std::vector<float>& wanted) {
  CHECK(values.size() == wanted.size());
  double sum = 0, squares = 0, worst = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += double(wanted[i]);
    squares += double(wanted[i]) * double(wanted[i]);
    worst = std::max(worst, std::abs(double(values[i]) - double(wanted[i])));
  }
  const double mean = sum / double(values.size());
  return worst / std::sqrt(squares / double(values.size()) - mean * mean);
}

struct Seeing {
  std::vector<TokenId> tokens;
  std::vector<PictureRows> pictures;
  std::vector<std::array<int32_t, 3>> places;

  // Whether a place lies inside a picture.
  bool InPicture(size_t at) const {
    return std::any_of(pictures.begin(), pictures.end(), [&](const PictureRows& one) {
      return one.row_begin < at && at < one.row_begin + one.row_count;
    });
  }
};

// A sequence under way, with the logits of all rows that were computed.
class Reading {
 public:
  Reading(const Model& model, const OpContext& context, const Seeing& prompt)
      : model_(model),
        context_(context),
        prompt_(prompt),
        state_(MakeState(model, context, int64_t(prompt.tokens.size()))),
        logits_(prompt.tokens.size() * size_t(model.vocab_size())) {}

  // Rows [begin, end), where the state of those before them is there.
  void Compute(size_t begin, size_t end) {
    std::vector<uint32_t> rows;
    for (size_t i = begin; i < end; ++i) rows.push_back(uint32_t(i - begin));
    std::vector<PictureRows> pictures;
    const int64_t width = model_.tower()->card().dim;
    for (const PictureRows& one : prompt_.pictures) {
      const size_t from = std::max<size_t>(one.row_begin, begin);
      const size_t to = std::min<size_t>(one.row_begin + one.row_count, end);
      if (from >= to) continue;
      pictures.push_back({uint32_t(from - begin), uint32_t(to - from),
                          one.vectors + int64_t(from - one.row_begin) * width});
    }
    SequenceSlice slice = state_.Next(0, 0, uint32_t(end - begin));
    slice.past = {int32_t(begin), int32_t(begin)};
    BatchView batch = {std::span(prompt_.tokens).subspan(begin, end - begin), {&slice, 1}, rows};
    batch.pictures = pictures;
    batch.places = std::span(prompt_.places).subspan(begin, end - begin);
    float* logits = logits_.data() + begin * size_t(model_.vocab_size());
    std::fill(logits, logits_.data() + logits_.size(), 0.0f);
    CHECK(model_.Forward(context_, batch, state_.memory(), logits).ok());
  }

  const std::vector<float>& logits() const { return logits_; }

 private:
  static LiveState MakeState(const Model& model, const OpContext& context, int64_t tokens) {
    auto state = LiveState::Create(model.state_spec(), 1, tokens, model.StateMemoryOf(context));
    CHECK(state.ok());
    return std::move(*state);
  }

  const Model& model_;
  const OpContext context_;
  const Seeing& prompt_;
  LiveState state_;
  std::vector<float> logits_;
};

// Logits of a prompt with two pictures, cut into two steps at `cut`.
inline std::vector<float> RunSeeing(const Model& model, const OpContext& context,
                                    const Seeing& prompt, size_t cut) {
  Reading run(model, context, prompt);
  if (cut > 0) run.Compute(0, cut);
  run.Compute(cut, prompt.tokens.size());
  return run.logits();
}

// A golden's model on the device of the law, with both pictures looked at.
class SeeingModel {
 protected:
  explicit SeeingModel(const SeeingGolden& golden, DType kv = DType::kF32)
      : golden_(golden), model_(LoadSeeing(machine_.context(), golden, kv)) {
    for (int i = 0; i < 2; ++i) {
      const std::string name = "/picture_" + std::to_string(i) + ".png";
      seen_.push_back(See(*model_, golden.folder() + name));
      vectors_.push_back(Look(*model_->tower(), machine_.context(), seen_.back()->pixels));
      DeviceMemory& memory = machine_.context().backend->memory();
      auto there = memory.Allocate(vectors_.back().size() * sizeof(float));
      CHECK(there.ok());
      memory.UploadArray<float>(there->data().As<float>(), std::span<const float>(vectors_.back()));
      there_.push_back(std::move(*there));
    }
  }

  // What Transformers computed. Valid as long as this.
  SafetensorsFile Wanted() {
    auto file = MappedFile::Open(golden_.folder() + "/vision.safetensors");
    CHECK(file.ok());
    wanted_.emplace(std::move(*file));
    auto parsed = SafetensorsFile::Parse(wanted_->bytes());
    CHECK(parsed.ok());
    return std::move(*parsed);
  }

  // The golden's prompt; places as Transformers' get_rope_index, or as its rows are counted.
  Seeing Prompt(const SafetensorsFile& golden) const {
    Seeing prompt;
    prompt.tokens = *golden.ReadIds("tokens");
    int32_t place = 0;
    size_t next = 0;
    for (size_t i = 0; i < prompt.tokens.size();) {
      if (prompt.tokens[i] != golden_.picture_token) {
        prompt.places.push_back({place, place, place});
        ++place, ++i;
        continue;
      }
      const SeenPicture& picture = *seen_[next];
      prompt.pictures.push_back(
          {uint32_t(i), uint32_t(picture.tokens()), there_[next].data().As<const float>()});
      for (int32_t index = 0; index < picture.tokens(); ++index, ++i) {
        if (picture.in_line) {
          prompt.places.push_back({place + index, place + index, place + index});
        } else {
          prompt.places.push_back(
              {place, place + index / picture.columns, place + index % picture.columns});
        }
      }
      place += picture.positions();
      ++next;
    }
    // As the engine does it.
    std::replace(prompt.tokens.begin(), prompt.tokens.end(), golden_.picture_token, 0);
    return prompt;
  }

  const SeeingGolden golden_;
  std::optional<MappedFile> wanted_;
  LawMachine machine_{2};
  std::unique_ptr<Model> model_;
  std::vector<std::shared_ptr<const SeenPicture>> seen_;
  std::vector<std::vector<float>> vectors_;
  std::vector<DeviceBuffer> there_;  // the vectors, on the device
};

}  // namespace reprise
