// SPDX-License-Identifier: Apache-2.0
#include "model/vision/load_tower.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/json.h"
#include "kernels/backend.h"
#include "model/digest.h"
#include "model/load.h"
#include "model/vision/qwen_tower.h"

namespace reprise {
namespace {

constexpr std::string_view kKnown[] = {"qwen3_5", "qwen3_5_vision", "qwen3_5_moe",
                                       "qwen3_5_moe_vision"};
constexpr std::string_view kMmprojArchitecture = "clip";
constexpr std::string_view kFirstTensor = "patch_embed.proj.weight";

// What stands before the names of the tower's tensors; empty: there are none.
std::string TowerPrefix(const Checkpoint& checkpoint) {
  for (const std::string prefix : {"model.visual.", "visual."}) {
    if (checkpoint.Find(prefix + std::string(kFirstTensor)) != nullptr) return prefix;
  }
  return {};
}

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

Result<PatchRules> ParseRules(const JsonValue& json) {
  constexpr int64_t kPixelsMost = int64_t{1} << 26;
  constexpr int kBicubic = 3;
  PatchRules rules;
  RulesReader reader(json);
  reader.Int("patch_size", 64, &rules.patch);
  reader.Int("temporal_patch_size", 4, &rules.frames);
  reader.Int("merge_size", 4, &rules.merge);
  reader.Int("min_pixels", kPixelsMost, &rules.pixels_min);
  reader.Int("max_pixels", kPixelsMost, &rules.pixels_max);
  if (const JsonValue* size = json.Find("size"); size != nullptr && size->is_object()) {
    reader.Int(size->Find("shortest_edge"), "size.shortest_edge", kPixelsMost, &rules.pixels_min);
    reader.Int(size->Find("longest_edge"), "size.longest_edge", kPixelsMost, &rules.pixels_max);
  }
  reader.Three("image_mean", false, &rules.mean);
  reader.Three("image_std", true, &rules.deviation);
  for (const char* done : {"do_resize", "do_rescale", "do_normalize"}) reader.Done(done);
  int resample = kBicubic;
  reader.Int("resample", 16, &resample);
  if (resample != kBicubic) reader.Fail("resample", "must be 3 (bicubic)");
  if (rules.pixels_min > rules.pixels_max) reader.Fail("size", "has a minimum above its maximum");
  REPRISE_TRY(reader.status());
  return rules;
}

}  // namespace

Result<PatchRules> ReadPatchRules(const Checkpoint& checkpoint) {
  for (const char* name : {"preprocessor_config.json", "processor_config.json"}) {
    const auto text = checkpoint.ReadText(name);
    if (!text.ok()) continue;
    auto json = JsonDocument::Parse(*text);
    if (!json.ok()) return json.status().Annotate(name);
    const JsonValue* nested = json->root().Find("image_processor");
    auto rules = ParseRules(nested != nullptr ? *nested : json->root());
    if (!rules.ok()) return rules.status().Annotate(name);
    return rules;
  }
  return PatchRules();
}

namespace {

// Pictures as a GGUF file of a tower has them prepared; what it does not say is as in a folder that
// says nothing.
Result<PatchRules> ReadGgufRules(const Checkpoint& mmproj) {
  const Metadata vision = mmproj.metadata().Section("clip").Section("vision");
  constexpr IntRange kPixels{1, int64_t{1} << 26};
  PatchRules rules;
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
  REPRISE_TRY(three("image_mean", -16, &rules.mean));
  REPRISE_TRY(three("image_std", 1e-3, &rules.deviation));
  if (rules.pixels_min > rules.pixels_max) {
    return DataLoss("the least size of pictures is above the greatest");
  }
  return rules;
}

// Whether there is a tower that is known; `prefix` is what stands before its tensors.
Result<bool> HasTower(const Checkpoint& checkpoint, ConfigReader* config, std::string* prefix) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    if (checkpoint.architecture() == kMmprojArchitecture) return true;
    return InvalidArgument("it is a model of the architecture " +
                           Quoted(checkpoint.architecture()) + ", not the tower of one (mmproj)");
  }
  *prefix = TowerPrefix(checkpoint);
  const std::string type = config->Text({"vision_config.model_type", ""}, "");
  return !prefix->empty() &&
         std::find(std::begin(kKnown), std::end(kKnown), type) != std::end(kKnown);
}

}  // namespace

Result<std::shared_ptr<const VisionTower>> LoadTower(const Checkpoint& checkpoint,
                                                     const OpContext& context) {
  std::shared_ptr<const VisionTower> none;
  if (!context.backend->sees()) return none;
  std::string prefix;
  ConfigReader config(checkpoint);
  REPRISE_ASSIGN(const bool there, HasTower(checkpoint, &config, &prefix));
  if (!there) return none;
  const bool gguf = checkpoint.format() == CheckpointFormat::kGguf;
  REPRISE_ASSIGN(const PatchRules rules,
                 gguf ? ReadGgufRules(checkpoint) : ReadPatchRules(checkpoint));
  REPRISE_ASSIGN(std::shared_ptr<QwenTower> tower, QwenTower::Make(&config, rules));
  TensorPlan plan(prefix);
  tower->DeclareTensors(&plan);
  Digest digest;
  digest.Add("qwen tower 1");
  digest.Add(context.backend->numerics());
  for (const auto& [key, value] : config.taken()) {
    digest.Add(key);
    digest.Add(value);
  }
  TowerCard* card = tower->mutable_card();
  REPRISE_ASSIGN(DeviceBuffer vectors,
                 LoadPlan(checkpoint, context, plan, &digest, &card->weight_bytes));
  REPRISE_TRY(tower->CompleteWeights(context));
  tower->HoldVectors(std::move(vectors));
  card->digest = digest.Hex();
  return std::shared_ptr<const VisionTower>(std::move(tower));
}

}  // namespace reprise
