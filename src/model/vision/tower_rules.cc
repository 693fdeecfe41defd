// SPDX-License-Identifier: Apache-2.0
#include "model/vision/tower_rules.h"

#include <array>
#include <string>
#include <string_view>

#include "base/json.h"
#include "weights/metadata.h"

namespace reprise {
namespace {

constexpr int64_t kPixelsMost = int64_t{1} << 26;

// Members of a processor's file, each in its range.
class RulesReader {
 public:
  explicit RulesReader(const JsonValue& json) : json_(json) {}

  template <typename T>
  void Int(const JsonValue* value, std::string_view name, int64_t most, T* out) {
    if (value == nullptr || value->is_null()) return;
    if (!value->is_int() || value->as_int() < 1 || value->as_int() > most) {
      return Fail(name, "must be a number from 1 to " + std::to_string(most));
    }
    *out = static_cast<T>(value->as_int());
  }
  template <typename T>
  void Int(std::string_view name, int64_t most, T* out) {
    Int(json_.Find(name), name, most, out);
  }
  // Three numbers within (-16, 16).
  void Three(std::string_view name, bool positive, std::array<float, 3>* out) {
    const JsonValue* value = json_.Find(name);
    if (value == nullptr || value->is_null()) return;
    if (!value->is_array() || value->items().size() != 3) {
      return Fail(name, "must be three numbers");
    }
    for (size_t i = 0; i < 3; ++i) {
      const JsonValue& item = value->items()[i];
      const double number = item.is_number() ? item.as_double() : 100;
      if (!(number > -16 && number < 16) || (positive && number < 1e-3)) {
        return Fail(name, "must be three numbers within their range");
      }
      (*out)[i] = static_cast<float>(number);
    }
  }
  void Resample(const PatchRules& rules) {
    const bool bicubic = rules.filter == ResizeFilter::kBicubic;
    const int wanted = bicubic ? 3 : 2;
    int resample = wanted;
    Int("resample", 16, &resample);
    if (resample != wanted) {
      Fail("resample", bicubic ? "must be 3 (bicubic)" : "must be 2 (bilinear)");
    }
  }
  // What is always done must not be switched off.
  void Done(std::string_view name) {
    const JsonValue* value = json_.Find(name);
    if (value != nullptr && value->is_bool() && !value->as_bool()) Fail(name, "must be true");
  }
  void Fail(std::string_view name, const std::string& why) {
    if (status_.ok()) status_ = InvalidArgument(std::string(name) + " of pictures " + why);
  }
  const Status& status() const { return status_; }

 private:
  const JsonValue& json_;
  Status status_;
};

// Gemma 4: values from 0 to 1 that the tower spreads to -1 to 1, and a number of tokens.
void ReadTokens(const JsonValue& json, RulesReader* reader, PatchRules* rules) {
  reader->Int("patch_size", 64, &rules->patch);
  reader->Int("pooling_kernel_size", 16, &rules->merge);
  reader->Int("max_soft_tokens", 4096, &rules->tokens_max);
  const JsonValue* normed = json.Find("do_normalize");
  if (normed != nullptr && normed->is_bool() && normed->as_bool()) {
    reader->Fail("do_normalize", "must be false");
  }
  for (const char* done : {"do_resize", "do_rescale"}) reader->Done(done);
}

// A square, where both sides are given, as they are.
void ReadSize(const JsonValue& size, RulesReader* reader, PatchRules* rules) {
  constexpr int64_t kSideMost = 4096;
  if (rules->fit == PictureFit::kSquare) {
    int height = rules->side;
    reader->Int(size.Find("height"), "size.height", kSideMost, &height);
    rules->side = height;
    reader->Int(size.Find("width"), "size.width", kSideMost, &rules->side);
    if (height != rules->side) reader->Fail("size", "must be a square");
    return;
  }
  reader->Int(size.Find("shortest_edge"), "size.shortest_edge", kPixelsMost, &rules->pixels_min);
  reader->Int(size.Find("longest_edge"), "size.longest_edge", kPixelsMost, &rules->pixels_max);
}

Result<PatchRules> ParseRules(const JsonValue& json, PatchRules rules) {
  RulesReader reader(json);
  if (rules.fit == PictureFit::kTokens) {
    ReadTokens(json, &reader, &rules);
    reader.Resample(rules);
    REPRISE_TRY(reader.status());
    return rules;
  }
  reader.Int("patch_size", 64, &rules.patch);
  reader.Int("temporal_patch_size", 4, &rules.frames);
  reader.Int("merge_size", 4, &rules.merge);
  reader.Int("min_pixels", kPixelsMost, &rules.pixels_min);
  reader.Int("max_pixels", kPixelsMost, &rules.pixels_max);
  if (const JsonValue* size = json.Find("size"); size != nullptr && size->is_object()) {
    ReadSize(*size, &reader, &rules);
  }
  reader.Three("image_mean", false, &rules.mean);
  reader.Three("image_std", true, &rules.deviation);
  for (const char* done : {"do_resize", "do_rescale", "do_normalize"}) reader.Done(done);
  reader.Resample(rules);
  // Parts of a picture beside the whole.
  const JsonValue* parts = json.Find("do_pan_and_scan");
  if (parts != nullptr && parts->is_bool() && parts->as_bool()) {
    reader.Fail("do_pan_and_scan", "must be false");
  }
  if (rules.pixels_min > rules.pixels_max) reader.Fail("size", "has a minimum above its maximum");
  REPRISE_TRY(reader.status());
  return rules;
}

// Pictures as a GGUF file of a tower has them prepared; what it does not say is as in a folder that
// says nothing.
Result<PatchRules> ReadGgufRules(const Checkpoint& mmproj, PatchRules rules) {
  const Metadata vision = mmproj.metadata().Section("clip").Section("vision");
  constexpr IntRange kPixels{1, kPixelsMost};
  REPRISE_ASSIGN(const int64_t patch, vision.IntOr("patch_size", rules.patch, {1, 64}));
  REPRISE_ASSIGN(const int64_t merge, vision.IntOr("spatial_merge_size", rules.merge, {1, 4}));
  REPRISE_ASSIGN(rules.pixels_min, vision.IntOr("image_min_pixels", rules.pixels_min, kPixels));
  REPRISE_ASSIGN(rules.pixels_max, vision.IntOr("image_max_pixels", rules.pixels_max, kPixels));
  rules.patch = int(patch);
  rules.merge = int(merge);
  const auto three = [&](std::string_view key, double least, std::array<float, 3>* out) {
    if (!vision.Has(key)) return OkStatus();
    REPRISE_ASSIGN(const std::vector<double> values, vision.Numbers(key, 3));
    if (values.size() != 3) return DataLoss(std::string(key) + " must be three numbers");
    for (size_t i = 0; i < 3; ++i) {
      if (!(values[i] >= least && values[i] < 16)) {
        return DataLoss(std::string(key) + " must be three numbers within their range");
      }
      (*out)[i] = float(values[i]);
    }
    return OkStatus();
  };
  if (rules.fit == PictureFit::kTokens) return rules;
  REPRISE_TRY(three("image_mean", -16, &rules.mean));
  REPRISE_TRY(three("image_std", 1e-3, &rules.deviation));
  if (rules.pixels_min > rules.pixels_max) {
    return DataLoss("the least size of pictures is above the greatest");
  }
  return rules;
}

}  // namespace

Result<PatchRules> ReadPatchRules(const Checkpoint& checkpoint, const PatchRules& rules) {
  if (checkpoint.format() == CheckpointFormat::kGguf) return ReadGgufRules(checkpoint, rules);
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    const auto text = checkpoint.ReadText(name);
    if (!text.ok()) continue;
    auto json = JsonDocument::Parse(*text);
    if (!json.ok()) return json.status().Annotate(name);
    const JsonValue* nested = json->root().Find("image_processor");
    auto read = ParseRules(nested != nullptr ? *nested : json->root(), rules);
    if (!read.ok()) return read.status().Annotate(name);
    return read;
  }
  return rules;
}

}  // namespace reprise
