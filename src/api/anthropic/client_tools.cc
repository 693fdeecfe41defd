// SPDX-License-Identifier: Apache-2.0
#include "api/anthropic/client_tools.h"

namespace reprise::api::anthropic {
namespace {

constexpr ClientTool kClientTools[] = {
    {"bash_", "Runs a command in a bash session that stays open between calls.",
     R"({"type":"object","properties":{)"
     R"("command":{"type":"string","description":"The command to run."},)"
     R"("restart":{"type":"boolean","description":"True starts a new session instead."}}})"},
    {"text_editor_", "Views, creates and edits text files.",
     R"({"type":"object","properties":{)"
     R"("command":{"type":"string","enum":["view","create","str_replace","insert"]},)"
     R"("path":{"type":"string","description":"The file or folder."},)"
     R"("file_text":{"type":"string","description":"create: the content of the new file."},)"
     R"("old_str":{"type":"string","description":"str_replace: text that occurs once."},)"
     R"("new_str":{"type":"string","description":"str_replace, insert: the new text."},)"
     R"("insert_line":{"type":"integer","description":"insert: the line to insert after."},)"
     R"("insert_text":{"type":"string","description":"insert: the text to insert."},)"
     R"("view_range":{"type":"array","items":{"type":"integer"},)"
     R"("description":"view: first and last line; -1 is the end."}},)"
     R"("required":["command","path"]})"},
    {"memory_", "Keeps notes in files below /memories, from one conversation to the next.",
     R"({"type":"object","properties":{)"
     R"("command":{"type":"string",)"
     R"("enum":["view","create","str_replace","insert","delete","rename"]},)"
     R"("path":{"type":"string","description":"A path that begins with /memories."},)"
     R"("file_text":{"type":"string","description":"create: the content of the new file."},)"
     R"("old_str":{"type":"string","description":"str_replace: text that occurs once."},)"
     R"("new_str":{"type":"string","description":"str_replace: the new text."},)"
     R"("insert_line":{"type":"integer","description":"insert: the line to insert after."},)"
     R"("insert_text":{"type":"string","description":"insert: the text to insert."},)"
     R"("view_range":{"type":"array","items":{"type":"integer"},)"
     R"("description":"view: first and last line."},)"
     R"("old_path":{"type":"string","description":"rename: what to rename."},)"
     R"("new_path":{"type":"string","description":"rename: its new name."}},)"
     R"("required":["command"]})"},
};

}  // namespace

const ClientTool* FindClientTool(std::string_view type) {
  for (const ClientTool& tool : kClientTools) {
    if (type.starts_with(tool.type)) return &tool;
  }
  return nullptr;
}

}  // namespace reprise::api::anthropic
