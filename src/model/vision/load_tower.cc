// SPDX-License-Identifier: Apache-2.0
#include "model/vision/load_tower.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kernels/backend.h"
#include "model/digest.h"
#include "model/load.h"
#include "model/vision/gemma/gemma4_tower.h"
#include "model/vision/gemma/siglip_tower.h"
#include "model/vision/qwen_tower.h"

namespace reprise {
namespace {

constexpr std::string_view kMmprojArchitecture = "clip";

enum class Kind { kNone, kQwen, kSiglip, kGemma4 };

// What towers are by vision_config.model_type.
struct Known {
  std::string_view type;
  Kind kind;
};
constexpr Known kKnown[] = {{"qwen3_vl", Kind::kQwen},
                            {"qwen3_vl_vision", Kind::kQwen},
                            {"qwen3_vl_moe", Kind::kQwen},
                            {"qwen3_vl_moe_vision", Kind::kQwen},
                            {"qwen3_5", Kind::kQwen},
                            {"qwen3_5_vision", Kind::kQwen},
                            {"qwen3_5_moe", Kind::kQwen},
                            {"qwen3_5_moe_vision", Kind::kQwen},
                            {"siglip_vision_model", Kind::kSiglip},
                            {"gemma4_vision", Kind::kGemma4}};

// What stands before the names of a tower's tensors in a folder, and the first of them.
struct Place {
  Kind kind;
  std::string_view prefix;
  std::string_view tensor;
};
constexpr Place kPlaces[] = {
    {Kind::kQwen, "model.visual.", "patch_embed.proj.weight"},
    {Kind::kQwen, "visual.", "patch_embed.proj.weight"},
    {Kind::kSiglip, "", "multi_modal_projector.mm_input_projection_weight"},
    {Kind::kSiglip, "model.", "multi_modal_projector.mm_input_projection_weight"},
    {Kind::kGemma4, "model.", "embed_vision.embedding_projection.weight"},
    {Kind::kGemma4, "", "embed_vision.embedding_projection.weight"}};

// Of the digest.
std::string_view NameOf(Kind kind) {
  return kind == Kind::kQwen     ? "qwen tower 1"
         : kind == Kind::kSiglip ? "siglip tower 1"
                                 : "gemma 4 tower 1";
}

// The tower that is there, and what stands before its tensors.
Result<Kind> FindTower(const Checkpoint& checkpoint, ConfigReader* config, std::string* prefix) {
  if (checkpoint.format() == CheckpointFormat::kGguf) {
    if (checkpoint.architecture() != kMmprojArchitecture) {
      return InvalidArgument("it is a model of the architecture " +
                             Quoted(checkpoint.architecture()) + ", not the tower of one (mmproj)");
    }
    // Files that hear as well name the projectors one by one.
    const bool own = config->Has({"", "vision.projector_type"});
    const std::string type =
        config->Text({"", own ? "vision.projector_type" : "projector_type"}, "");
    return type == SiglipTower::kProjector   ? Kind::kSiglip
           : type == Gemma4Tower::kProjector ? Kind::kGemma4
                                             : Kind::kQwen;
  }
  const std::string type = config->Text({"vision_config.model_type", ""}, "");
  const auto* known = std::find_if(std::begin(kKnown), std::end(kKnown),
                                   [&](const Known& one) { return one.type == type; });
  if (known == std::end(kKnown)) return Kind::kNone;
  for (const Place& place : kPlaces) {
    const std::string name = std::string(place.prefix) + std::string(place.tensor);
    if (place.kind != known->kind || checkpoint.Find(name) == nullptr) continue;
    *prefix = place.prefix;
    return known->kind;
  }
  return Kind::kNone;
}

Result<std::shared_ptr<PlannedTower>> MakeTower(Kind kind, const Checkpoint& checkpoint,
                                                ConfigReader* config) {
  if (kind == Kind::kSiglip) {
    REPRISE_ASSIGN(const PatchRules rules, ReadPatchRules(checkpoint, SiglipTower::DefaultRules()));
    REPRISE_ASSIGN(std::shared_ptr<PlannedTower> tower, SiglipTower::Make(config, rules));
    return tower;
  }
  if (kind == Kind::kGemma4) {
    REPRISE_ASSIGN(const PatchRules rules, ReadPatchRules(checkpoint, Gemma4Tower::DefaultRules()));
    REPRISE_ASSIGN(std::shared_ptr<PlannedTower> tower, Gemma4Tower::Make(config, rules));
    return tower;
  }
  REPRISE_ASSIGN(const PatchRules rules, ReadPatchRules(checkpoint));
  REPRISE_ASSIGN(std::shared_ptr<PlannedTower> tower, QwenTower::Make(config, rules));
  return tower;
}

}  // namespace

Result<std::shared_ptr<const VisionTower>> LoadTower(const Checkpoint& checkpoint,
                                                     const OpContext& context) {
  std::shared_ptr<const VisionTower> none;
  if (!context.backend->sees()) return none;
  std::string prefix;
  ConfigReader config(checkpoint);
  REPRISE_ASSIGN(const Kind kind, FindTower(checkpoint, &config, &prefix));
  if (kind == Kind::kNone) return none;
  REPRISE_ASSIGN(std::shared_ptr<PlannedTower> tower, MakeTower(kind, checkpoint, &config));
  TensorPlan plan(prefix);
  tower->DeclareTensors(&plan);
  Digest digest;
  digest.Add(NameOf(kind));
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
