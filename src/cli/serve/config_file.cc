// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/config_file.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include <optional>
#include <utility>

#include "base/mapped_file.h"

namespace reprise::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{1} << 20;

Status Wrong(const std::string& path, const toml::node& node, const std::string& why) {
  return InvalidArgument(path + ":" + std::to_string(node.source().begin.line) + ": " + why);
}

// A value as the command line would have it.
std::optional<std::string> TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return std::to_string(number->get());
  if (const auto* flag = node.as_boolean()) return flag->get() ? "true" : "false";
  if (const auto* number = node.as_floating_point()) {
    std::string digits = std::to_string(number->get());
    return digits;
  }
  return std::nullopt;
}

std::string OptionName(std::string_view key) {
  std::string name(key);
  for (char& c : name) c = c == '_' ? '-' : c;
  return name;
}

class Reader {
 public:
  Reader(const std::string& path, ConfigFile* file)
      : path_(path), file_(*file), settings_(&file->settings) {}

  Status ReadTable(const toml::table& table, const std::string& prefix) {
    for (const auto& [key, node] : table) {
      const std::string name = prefix + OptionName(key.str());
      const auto* inner = node.as_table();
      if (inner != nullptr && name == "models") {
        REPRISE_TRY(ReadModels(*inner));
      } else if (inner != nullptr) {
        REPRISE_TRY(ReadTable(*inner, name + "-"));
      } else if (const auto* list = node.as_array()) {
        REPRISE_TRY(ReadArray(*list, name));
      } else {
        const auto text = TextOf(node);
        if (!text)
          return Wrong(path_, node,
                       "'" + name + "' has a value that is not a string, number or boolean");
        settings_->push_back({name, {*text}});
      }
    }
    return OkStatus();
  }

 private:
  Status ReadModels(const toml::table& table) {
    for (const auto& [key, node] : table) {
      const auto* model = node.as_table();
      if (model == nullptr) {
        return Wrong(path_, node, "'models' holds tables, one a model: [models.NAME]");
      }
      file_.models.emplace_back(std::string(key.str()), Flags::Settings());
      settings_ = &file_.models.back().second;
      const Status read = ReadTable(*model, "");
      settings_ = &file_.settings;
      REPRISE_TRY(read);
    }
    return OkStatus();
  }

  Status ReadArray(const toml::array& list, const std::string& name) {
    std::vector<std::string> values;
    for (const toml::node& item : list) {
      if (const auto* record = item.as_table()) {
        REPRISE_TRY(ReadRecord(*record, name));
        continue;
      }
      const auto text = TextOf(item);
      if (!text)
        return Wrong(path_, item,
                     "'" + name + "' has a value that is not a string, number or boolean");
      values.push_back(*text);
    }
    if (!values.empty()) settings_->push_back({name, std::move(values)});
    return OkStatus();
  }

  Status ReadRecord(const toml::table& table, const std::string& name) {
    ConfigFile::Record record;
    for (const auto& [key, node] : table) {
      const auto text = TextOf(node);
      if (!text)
        return Wrong(path_, node,
                     "'" + name + "' has a value that is not a string, number or boolean");
      record[std::string(key.str())] = *text;
    }
    file_.records[name].push_back(std::move(record));
    return OkStatus();
  }

  const std::string& path_;
  ConfigFile& file_;
  Flags::Settings* settings_;  // where they go now
};

}  // namespace

Result<ConfigFile> ReadConfigFile(const std::string& path) {
  REPRISE_ASSIGN(const std::string text, ReadFile(path, kFileBytesMax));
  const toml::parse_result parsed = toml::parse(text, path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return InvalidArgument(path + ":" + std::to_string(error.source().begin.line) + ": " +
                           std::string(error.description()));
  }
  ConfigFile file;
  REPRISE_TRY(Reader(path, &file).ReadTable(parsed.table(), ""));
  return file;
}

}  // namespace reprise::cli
