// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/chat/conversation.h"
#include "cli/chat/session.h"
#include "cli/line/line_editor.h"

namespace reprise::cli {

// A chat in the terminal: messages and commands from a person, or line by line from a pipe; replies
// to stdout. Commands begin with a slash and are never sent to the model, known or not. A message
// may span lines: behind a backslash, between two """, or by Alt-Enter.
class Chat {
 public:
  // `history_path`: of what is typed; empty: kept in memory. Both must outlive this.
  Chat(Session* session, Conversation* conversation, std::string history_path, bool stats);
  ~Chat();

  // Until the end of the input, /bye, Ctrl-D or Ctrl-C twice. Trouble with one message is told and
  // the chat goes on, unless it comes from a pipe.
  Status Run();

  // One message, with the pictures that were added before it, and its reply.
  Status Talk(const std::string& message);
  // A picture for the next message, from a file. Returns its tokens.
  Result<int32_t> AddPicture(const std::string& path);

 private:
  struct Command;
  static const Command kCommands[];

  std::optional<std::string> ReadLine(std::string_view prompt, std::string draft);
  // False at the end of the input.
  bool ReadMessage(std::string* message);
  const Command* FindCommand(std::string_view name) const;
  Status Obey(const std::string& line);
  Status Reply(Question question, uint64_t seed);
  void Show(const std::string& text) const;

  Status Help(const std::string& rest);
  Status Bye(const std::string& rest);
  Status Clear(const std::string& rest);
  Status Image(const std::string& rest);
  Status Save(const std::string& rest);
  Status Load(const std::string& rest);
  Status Regenerate(const std::string& rest);
  Status Edit(const std::string& rest);
  Status System(const std::string& rest);
  Status Set(const std::string& rest);
  Status Stats(const std::string& rest);
  Status Cache(const std::string& rest);

  Session& session_;
  Conversation& conversation_;
  std::unique_ptr<LineEditor> editor_;  // null: no terminal at stdin
  bool stats_;                          // after each reply
  bool over_ = false;
  uint64_t attempts_ = 0;               // at the last question, besides the first
  std::string draft_;                   // of the next message
  std::vector<ShownPicture> pictures_;  // that go with it
};

}  // namespace reprise::cli
