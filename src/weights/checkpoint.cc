// SPDX-License-Identifier: Apache-2.0
#include "weights/checkpoint.h"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/mapped_file.h"
#include "weights/format/gguf_parts.h"
#include "weights/format/safetensors.h"
#include "weights/recipe/recipe.h"

namespace reprise {
namespace {

constexpr size_t kConfigBytesMax = 16 << 20;
constexpr size_t kIndexBytesMax = 100 << 20;
constexpr size_t kTextBytesMax = 512 << 20;

bool IsDirectory(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0 && S_ISDIR(st.st_mode);
}

bool Exists(const std::string& path) {
  struct stat st {};
  return ::stat(path.c_str(), &st) == 0;
}

// A name that stays in its folder, whatever an index file says.
bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() < 256 && name[0] != '.' &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

}  // namespace

struct Checkpoint::Parts {
  CheckpointFormat format;
  std::string path;
  std::vector<MappedFile> files;
  std::vector<std::unique_ptr<GgufFile>> ggufs;          // of `files`, or
  std::vector<std::unique_ptr<SafetensorsFile>> shards;  // of `files`
  std::optional<JsonDocument> config;
  Metadata metadata;
  std::vector<std::unique_ptr<Recipe>> recipes;  // of quantised matrices of a folder
  std::vector<std::unique_ptr<Recipe>> blocks;   // of those of a GGUF file that are of NVFP4
  std::vector<StoredTensor> tensors;             // sorted by name
  uint64_t tensor_bytes = 0;
};

class CheckpointOpener {
 public:
  explicit CheckpointOpener(const std::string& path) : parts_(new Checkpoint::Parts) {
    parts_->path = path;
  }

  Result<Checkpoint> Run() {
    const std::string& path = parts_->path;
    REPRISE_TRY(IsDirectory(path) ? OpenHuggingFace(path) : OpenGguf(path));
    REPRISE_TRY(SortTensors());
    return Checkpoint(std::move(parts_));
  }

 private:
  Status OpenGguf(const std::string& path) {
    if (path.ends_with(".safetensors")) {
      return InvalidArgument(path + ": give the folder that holds it and config.json");
    }
    parts_->format = CheckpointFormat::kGguf;
    REPRISE_TRY(AddGguf(path));
    const Result<GgufPart> part = ReadGgufPart(*parts_->ggufs[0]);
    if (!part.ok()) return part.status().Annotate(path);
    if (part->count > 1) REPRISE_TRY(OpenParts(path, *part));
    parts_->metadata = Metadata(parts_->ggufs[0].get());
    return OkStatus();
  }

  // All files of the set that one of them belongs to.
  Status OpenParts(const std::string& path, const GgufPart& named) {
    const std::optional<std::string> stem = GgufPartStem(path, named);
    const std::string set = "of " + std::to_string(named.count) + " of a model";
    if (!stem) {
      return InvalidArgument(path + " is part " + std::to_string(named.number) + " " + set +
                             ": its name must end with " +
                             GgufPartPath("", named.number, named.count));
    }
    parts_->ggufs.clear();
    parts_->files.clear();
    std::vector<const GgufFile*> all;
    for (int64_t number = 1; number <= named.count; ++number) {
      const std::string part = GgufPartPath(*stem, number, named.count);
      if (!Exists(part)) {
        return NotFound(part + " is missing: " + path + " is part " + std::to_string(named.number) +
                        " " + set + ", and all are needed");
      }
      REPRISE_TRY(AddGguf(part));
      all.push_back(parts_->ggufs.back().get());
      const Status fits = CheckGgufPart(*all.back(), number, named.count, *all[0]);
      if (!fits.ok()) return fits.Annotate(part);
    }
    const Status whole = CheckGgufTensorCount(all);
    return whole.ok() ? whole : whole.Annotate(path);
  }

  Status AddGguf(const std::string& path) {
    REPRISE_ASSIGN(MappedFile file, MappedFile::Open(path));
    Result<GgufFile> gguf = GgufFile::Parse(file.bytes());
    if (!gguf.ok()) return gguf.status().Annotate(path);
    parts_->files.push_back(std::move(file));
    parts_->ggufs.push_back(std::make_unique<GgufFile>(std::move(*gguf)));
    return OkStatus();
  }

  Status OpenHuggingFace(const std::string& folder) {
    parts_->format = CheckpointFormat::kHuggingFace;
    Result<std::string> text = ReadFile(folder + "/config.json", kConfigBytesMax);
    if (!text.ok()) {
      return text.status().Annotate("not a model folder (config.json and model.safetensors)");
    }
    Result<JsonDocument> config = ParseConfigJson(*text);
    if (!config.ok()) return config.status().Annotate(folder + "/config.json");
    if (!config->root().is_object()) return DataLoss(folder + "/config.json: not a JSON object");
    parts_->config.emplace(std::move(*config));
    parts_->metadata = Metadata(parts_->config->root());
    REPRISE_TRY(Exists(folder + "/model.safetensors.index.json")
                    ? OpenShards(folder)
                    : AddShard(folder + "/model.safetensors"));
    AddRecipes();
    return OkStatus();
  }

  // The matrices of a quantised folder. Older ones of ModelOpt say what they are in a file of their
  // own.
  void AddRecipes() {
    const JsonValue* quantization = parts_->metadata.FindJson("quantization_config");
    std::optional<JsonDocument> own;
    if (quantization == nullptr) {
      const auto text = ReadFile(parts_->path + "/hf_quant_config.json", kConfigBytesMax);
      auto config = JsonDocument::Parse(text.ok() ? FromModelOptFile(*text) : std::string());
      if (config.ok()) own.emplace(std::move(*config));
      if (own) quantization = &own->root();
    }
    if (quantization == nullptr || !quantization->is_object()) return;
    std::vector<StoredPart> all;
    for (size_t file = 0; file < parts_->shards.size(); ++file) {
      for (const StoredTensor& tensor : parts_->shards[file]->tensors()) {
        all.push_back(PartOf(tensor, int(file)));
      }
      for (const SafetensorsFile::Foreign& tensor : parts_->shards[file]->foreign()) {
        all.push_back({tensor.name, tensor.type, tensor.shape, tensor.bytes, int(file)});
      }
    }
    parts_->recipes = FindRecipes(*quantization, all);
  }

  Status OpenShards(const std::string& folder) {
    const std::string path = folder + "/model.safetensors.index.json";
    REPRISE_ASSIGN(const std::string text, ReadFile(path, kIndexBytesMax));
    Result<JsonDocument> index = JsonDocument::Parse(text);
    if (!index.ok()) return index.status().Annotate(path);
    const JsonValue* map = index->root().Find("weight_map");
    if (map == nullptr || !map->is_object()) return DataLoss(path + ": there is no weight_map");
    std::set<std::string_view> names;
    for (const JsonValue::Member& member : map->members()) {
      if (!member.value.is_string() || !IsPlainFileName(member.value.as_string())) {
        return DataLoss(path + ": tensor " + Quoted(member.key) +
                        " is not mapped to a file of this folder");
      }
      names.insert(member.value.as_string());
    }
    for (const std::string_view name : names) {
      REPRISE_TRY(AddShard(folder + "/" + std::string(name)));
    }
    return CheckIndex(path, *map, names);
  }

  // Every tensor of the index is in the file that the index names.
  Status CheckIndex(const std::string& path, const JsonValue& map,
                    const std::set<std::string_view>& names) {
    std::set<std::pair<std::string_view, std::string_view>> present;  // file, tensor
    size_t shard = 0;
    for (const std::string_view name : names) {
      for (const StoredTensor& tensor : parts_->shards[shard]->tensors()) {
        present.emplace(name, tensor.name);
      }
      for (const auto& foreign : parts_->shards[shard]->foreign())
        present.emplace(name, foreign.name);
      ++shard;
    }
    for (const JsonValue::Member& member : map.members()) {
      if (!present.contains({member.value.as_string(), member.key})) {
        return DataLoss(path + ": tensor " + Quoted(member.key) + " is not in " +
                        Quoted(member.value.as_string()));
      }
    }
    return OkStatus();
  }

  Status AddShard(const std::string& path) {
    REPRISE_ASSIGN(MappedFile file, MappedFile::Open(path));
    Result<SafetensorsFile> shard = SafetensorsFile::Parse(file.bytes());
    if (!shard.ok()) return shard.status().Annotate(path);
    parts_->files.push_back(std::move(file));
    parts_->shards.push_back(std::make_unique<SafetensorsFile>(std::move(*shard)));
    return OkStatus();
  }

  Status SortTensors() {
    std::vector<StoredTensor>& tensors = parts_->tensors;
    for (size_t file = 0; file < parts_->files.size(); ++file) {
      const auto& own =
          parts_->ggufs.empty() ? parts_->shards[file]->tensors() : parts_->ggufs[file]->tensors();
      for (StoredTensor tensor : own) {
        tensor.file = int(file);
        parts_->tensor_bytes += tensor.bytes.size();
        tensors.push_back(tensor);
      }
    }
    JoinMxfp4();
    REPRISE_TRY(JoinNvfp4());
    for (const auto& recipe : parts_->recipes) {
      tensors.push_back(recipe->tensor());
      if (recipe->data.type != "I32") parts_->tensor_bytes += recipe->data.bytes.size();
    }
    std::sort(tensors.begin(), tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    for (size_t i = 1; i < tensors.size(); ++i) {
      if (tensors[i].name == tensors[i - 1].name) {
        return DataLoss(parts_->path + ": tensor " + Quoted(tensors[i].name) + " is in two files");
      }
    }
    return OkStatus();
  }

  // In GGUF files a matrix "<name>.weight" of NVFP4 has a scale of all of it, or one of each slice,
  // in "<name>.scale"; "<name>.input_scale" is for activations of eight bits.
  Status JoinNvfp4() {
    std::vector<StoredTensor>& tensors = parts_->tensors;
    std::map<std::string_view, const StoredTensor*> by_name;
    std::set<std::string_view> joined;
    for (const StoredTensor& tensor : tensors) by_name.emplace(tensor.name, &tensor);
    for (StoredTensor& tensor : tensors) {
      if (tensor.recipe != &kNvfp4Blocks) continue;
      constexpr std::string_view kWeight = ".weight";
      std::string stem(tensor.name);
      if (stem.ends_with(kWeight)) stem.resize(stem.size() - kWeight.size());
      const auto scale = by_name.find(stem + ".scale");
      const auto unused = by_name.find(stem + ".input_scale");
      const bool scaled = scale != by_name.end();
      auto recipe = MakeNvfp4Recipe(tensor, scaled ? scale->second : nullptr);
      if (recipe == nullptr) {
        return DataLoss(parts_->path + ": the scale of tensor " + Quoted(tensor.name) +
                        " does not fit it");
      }
      if (scaled) joined.insert(scale->first);
      if (unused != by_name.end()) joined.insert(unused->first);
      tensor.recipe = recipe.get();
      parts_->blocks.push_back(std::move(recipe));
    }
    std::erase_if(tensors, [&](const StoredTensor& one) { return joined.contains(one.name); });
    return OkStatus();
  }

  // Tensors "<name>_blocks" [..., rows, cols / 32, 16] and "<name>_scales" [..., rows, cols / 32]
  // of bytes are one of MXFP4, [..., rows, cols], known as "<name>_blocks".
  void JoinMxfp4() {
    struct Bytes {
      const SafetensorsFile::Foreign* tensor;
      int file;
    };
    std::map<std::string_view, Bytes> bytes;
    for (size_t file = 0; file < parts_->shards.size(); ++file) {
      for (const SafetensorsFile::Foreign& tensor : parts_->shards[file]->foreign()) {
        if (tensor.type == "U8") bytes.emplace(tensor.name, Bytes{&tensor, int(file)});
      }
    }
    constexpr std::string_view kLevels = "_blocks", kScales = "_scales";
    for (const auto& [name, levels] : bytes) {
      if (!name.ends_with(kLevels)) continue;
      const std::string stem(name.substr(0, name.size() - kLevels.size()));
      const auto scales = bytes.find(stem + std::string(kScales));
      if (scales == bytes.end()) continue;
      const Shape& shape = levels.tensor->shape;
      const Shape& blocks = scales->second.tensor->shape;
      if (shape.rank() != blocks.rank() + 1 || shape.cols() != 16 || blocks.rank() < 2) continue;
      int64_t extents[Shape::kRankMax];
      bool same = true;
      for (int axis = 0; axis < blocks.rank(); ++axis) {
        same = same && shape[axis] == blocks[axis];
        extents[axis] = blocks[axis] * (axis + 1 == blocks.rank() ? 32 : 1);
      }
      const auto joined = Shape::FromUntrusted({extents, size_t(blocks.rank())});
      if (!same || !joined || joined->elements() == 0) continue;
      StoredTensor tensor{name, DType::kMXFP4, *joined, levels.tensor->bytes, levels.file};
      tensor.scales = scales->second.tensor->bytes;
      tensor.scales_file = scales->second.file;
      parts_->tensor_bytes += tensor.bytes.size() + tensor.scales.size();
      parts_->tensors.push_back(tensor);
    }
  }

  std::unique_ptr<Checkpoint::Parts> parts_;
};

Checkpoint::Checkpoint(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> OpenCheckpoint(const std::string& path) { return CheckpointOpener(path).Run(); }

CheckpointFormat Checkpoint::format() const { return parts_->format; }
const std::string& Checkpoint::path() const { return parts_->path; }
const Metadata& Checkpoint::metadata() const { return parts_->metadata; }
std::span<const StoredTensor> Checkpoint::tensors() const { return parts_->tensors; }
uint64_t Checkpoint::tensor_bytes() const { return parts_->tensor_bytes; }

std::vector<std::string> Checkpoint::files() const {
  std::vector<std::string> paths;
  for (const MappedFile& file : parts_->files) paths.push_back(file.path());
  return paths;
}

std::string_view Checkpoint::architecture() const {
  const char* key = format() == CheckpointFormat::kGguf ? "general.architecture" : "model_type";
  const Result<std::string_view> name = metadata().Text(key);
  return name.ok() ? *name : std::string_view();
}

const StoredTensor* Checkpoint::Find(std::string_view name) const {
  const std::vector<StoredTensor>& tensors = parts_->tensors;
  const auto at = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const StoredTensor& tensor, std::string_view wanted) { return tensor.name < wanted; });
  return at == tensors.end() || at->name != name ? nullptr : &*at;
}

Result<const StoredTensor*> Checkpoint::Require(std::string_view name, const Shape& shape) const {
  const StoredTensor* tensor = Find(name);
  const std::string shown = path() + ": tensor " + Quoted(name);
  if (tensor == nullptr) {
    for (const auto& shard : parts_->shards) {
      for (const SafetensorsFile::Foreign& foreign : shard->foreign()) {
        if (foreign.name != name) continue;
        return Unimplemented(shown + " has type " + std::string(foreign.type) +
                             ", which is not supported (F32, F16 and BF16 are)");
      }
    }
    return NotFound(shown + " is missing");
  }
  if (!(tensor->shape == shape)) {
    return DataLoss(shown + " has shape " + tensor->shape.ToString() + "; expected " +
                    shape.ToString());
  }
  if (tensor->dtype == DType::kI32) {
    return Unimplemented(shown + " holds integers; expected weights");
  }
  return tensor;
}

void Checkpoint::Release(const StoredTensor& tensor) const {
  const auto release = [&](std::span<const std::byte> bytes, int index) {
    const MappedFile& file = parts_->files[static_cast<size_t>(index)];
    file.Release(static_cast<size_t>(bytes.data() - file.bytes().data()), bytes.size());
  };
  release(tensor.bytes, tensor.file);
  if (tensor.split()) release(tensor.scales, tensor.scales_file);
}

Result<std::string> Checkpoint::ReadText(std::string_view name, std::string_view folder) const {
  CHECK(IsPlainFileName(name));
  if (!folder.empty() && !IsPlainFileName(folder)) {
    return DataLoss(Quoted(folder) + " is not a folder of " + path());
  }
  if (format() == CheckpointFormat::kGguf) {
    return NotFound(path() + " is a GGUF file, which has no " + std::string(name) + " beside it");
  }
  const std::string inside = folder.empty() ? "" : std::string(folder) + "/";
  return ReadFile(path() + "/" + inside + std::string(name), kTextBytesMax);
}

}  // namespace reprise
