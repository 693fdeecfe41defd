// SPDX-License-Identifier: Apache-2.0
#include "cli/chat/chat.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <utility>

#include "base/mapped_file.h"
#include "cli/chat/reply_style.h"
#include "cli/chat/settings.h"
#include "cli/terminal.h"

namespace reprise::cli {
namespace {

constexpr size_t kFileBytesMax = size_t{64} << 20;
constexpr size_t kPicturesMax = 256;  // of a message
constexpr size_t kMessageBytesMax = size_t{8} << 20;
constexpr std::string_view kQuotes = "\"\"\"";

// Replies on a terminal: wrapped, and coloured unless NO_COLOR asks for none.
class TerminalReader : public ReplyReader {
 public:
  TerminalReader() : style_(RawTerminal::Size().columns, Colours()) {}
  void Think(std::string_view text) override { Write(style_.Think(text)); }
  void Say(std::string_view text) override { Write(style_.Say(text)); }
  void Finish() { Write(style_.Finish()); }

 private:
  static bool Colours() {
    const char* none = std::getenv("NO_COLOR");
    const char* kind = std::getenv("TERM");
    return (none == nullptr || none[0] == '\0') && kind != nullptr &&
           std::string_view(kind) != "dumb";
  }
  static void Write(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  ReplyStyle style_;
};

// Replies in a pipe: what the model writes.
class PipeReader : public ReplyReader {
 public:
  void Raw(std::string_view text) override { WriteText(text); }
};

std::string_view Trim(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\n");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\n") - first + 1);
}

// "/word", alone or before a space, on one line. Paths ("/usr/bin/env is what?") are messages.
std::string_view CommandName(std::string_view message) {
  if (!message.starts_with('/') || message.find('\n') != message.npos) return {};
  const std::string_view word = message.substr(1, message.find(' ') - 1);
  return word.find('/') == word.npos ? message.substr(0, word.size() + 1) : std::string_view();
}

std::string PathOf(const std::string& given) {
  const char* home = std::getenv("HOME");
  return given.starts_with("~/") && home != nullptr ? home + given.substr(1) : given;
}

}  // namespace

struct Chat::Command {
  const char* name;
  const char* argument;
  const char* help;  // empty: another name of the one before
  Status (Chat::*obey)(const std::string& rest);
};

const Chat::Command Chat::kCommands[] = {
    {"/help", "", "show this", &Chat::Help},
    {"/bye", "", "end (also Ctrl-D)", &Chat::Bye},
    {"/quit", "", "", &Chat::Bye},
    {"/exit", "", "", &Chat::Bye},
    {"/clear", "", "forget the conversation", &Chat::Clear},
    {"/reset", "", "", &Chat::Clear},
    {"/regenerate", "", "answer the last message again, differently", &Chat::Regenerate},
    {"/edit", "[TEXT]", "change the last message, and answer it anew", &Chat::Edit},
    {"/image", "FILE", "show a picture with the next message", &Chat::Image},
    {"/system", "[TEXT]", "show the system prompt, or set it ('-': none)", &Chat::System},
    {"/set", "[NAME VALUE]", "show the settings, or change one", &Chat::Set},
    {"/save", "FILE", "write the conversation to a file", &Chat::Save},
    {"/load", "FILE", "go on with a conversation from a file", &Chat::Load},
    {"/stats", "", "tokens, reuse and speed of the last reply", &Chat::Stats},
    {"/cache", "", "what is stored, and what was reused", &Chat::Cache},
};

Chat::Chat(Session* session, Conversation* conversation, std::string history_path, bool stats)
    : session_(*session), conversation_(*conversation), stats_(stats) {
  if (RawTerminal::Usable()) editor_ = std::make_unique<LineEditor>(std::move(history_path));
}

Chat::~Chat() = default;

std::optional<std::string> Chat::ReadLine(std::string_view prompt, std::string draft) {
  if (editor_ != nullptr) return editor_->Read(prompt, std::move(draft));
  if (::isatty(STDIN_FILENO) == 1) std::fputs(std::string(prompt).c_str(), stderr);
  std::string line;
  if (!std::getline(std::cin, line)) return std::nullopt;
  return line;
}

// Lines behind a backslash, or between two """, are one message.
bool Chat::ReadMessage(std::string* message) {
  auto line = ReadLine("> ", std::exchange(draft_, {}));
  if (!line) return false;
  *message = std::move(*line);
  const auto more = [&] {
    line = ReadLine(". ", "");
    return line && message->size() + line->size() < kMessageBytesMax;
  };
  const std::string_view trimmed = Trim(*message);
  if (trimmed.starts_with(kQuotes)) {
    const auto closed = [&] {
      const std::string_view text = Trim(*message);
      return text.size() >= 2 * kQuotes.size() && text.ends_with(kQuotes);
    };
    while (!closed()) {
      if (!more()) return false;
      *message += "\n" + *line;
    }
    std::string_view text = Trim(*message);
    text.remove_prefix(kQuotes.size());
    text.remove_suffix(kQuotes.size());
    *message = std::string(Trim(text));
    return true;
  }
  while (message->ends_with('\\')) {
    message->back() = '\n';
    if (!more()) return false;
    *message += *line;
  }
  return true;
}

Status Chat::Run() {
  const bool terminal = ::isatty(STDIN_FILENO) == 1;
  if (terminal) {
    std::fprintf(stderr, "%s. /help lists commands; Ctrl-C stops a reply; /bye or Ctrl-D ends.\n",
                 conversation_.is_chat() ? "Chat" : "No chat template: plain completion");
  }
  std::string message;
  while (!over_ && ReadMessage(&message)) {
    if (Trim(message).empty()) continue;
    attempts_ = CommandName(message).empty() ? 0 : attempts_;
    const Status done = CommandName(message).empty() ? Talk(message) : Obey(message);
    if (!done.ok() && !terminal) return done;
    if (!done.ok()) std::fprintf(stderr, "reprise: %s\n", done.message().c_str());
    if (interrupts > 1) break;
    interrupts = 0;
  }
  return OkStatus();
}

Status Chat::Talk(const std::string& message) {
  return Reply({message, std::exchange(pictures_, {})}, session_.options().sampling.seed);
}

Status Chat::Reply(Question question, uint64_t seed) {
  REPRISE_ASSIGN(GenerateRequest request, conversation_.Ask(std::move(question)));
  const uint64_t usual = std::exchange(session_.options().sampling.seed, seed);
  Result<std::string> reply = std::string();
  if (::isatty(STDOUT_FILENO) == 1) {
    TerminalReader reader;
    reply = session_.Answer(std::move(request), &reader);
    reader.Finish();
  } else {
    PipeReader reader;
    reply = session_.Answer(std::move(request), &reader);
    if (reply.ok()) WriteText("\n");
  }
  session_.options().sampling.seed = usual;
  if (!reply.ok()) {
    conversation_.Unask();
    return reply.status();
  }
  if (stats_) std::fprintf(stderr, "%s\n", session_.statistics().c_str());
  conversation_.Reply(*reply);
  auto next = conversation_.NextTurn();
  if (next.ok()) session_.Prepare(std::move(*next), editor_ == nullptr);
  return OkStatus();
}

const Chat::Command* Chat::FindCommand(std::string_view name) const {
  for (const Command& command : kCommands) {
    if (name == command.name) return &command;
  }
  return nullptr;
}

Status Chat::Obey(const std::string& line) {
  const std::string_view name = CommandName(line);
  const Command* command = FindCommand(name);
  if (command == nullptr) {
    return InvalidArgument("there is no command " + std::string(name.substr(0, 40)) +
                           "; /help lists them (a space before the slash makes it a message)");
  }
  return (this->*command->obey)(std::string(Trim(std::string_view(line).substr(name.size()))));
}

void Chat::Show(const std::string& text) const { WriteText(text); }

Status Chat::Help(const std::string&) {
  std::string text;
  for (const Command& command : kCommands) {
    if (command.help[0] == '\0') continue;
    text += fmt::format("  {:<20} {}\n", fmt::format("{} {}", command.name, command.argument),
                        command.help);
  }
  text +=
      "  \"\"\"                  begins and ends a message of several lines (or Alt-Enter)\n"
      "  Ctrl-C               stops a reply; twice, or Ctrl-D, ends\n";
  Show(text);
  return OkStatus();
}

Status Chat::Bye(const std::string&) {
  over_ = true;
  return OkStatus();
}

Status Chat::Clear(const std::string&) {
  conversation_.Clear();
  session_.Prepare({}, false);
  pictures_.clear();
  return OkStatus();
}

Result<int32_t> Chat::AddPicture(const std::string& path) {
  if (pictures_.size() == kPicturesMax)
    return InvalidArgument("a message has at most 256 pictures");
  REPRISE_ASSIGN(std::string file, ReadFile(PathOf(path), kFileBytesMax));
  auto picture = conversation_.See(std::move(file));
  if (!picture.ok()) return picture.status().Annotate(path);
  pictures_.push_back(std::move(*picture));
  return pictures_.back().seen->tokens();
}

Status Chat::Image(const std::string& rest) {
  if (rest.empty()) return InvalidArgument("/image needs the name of a file");
  REPRISE_ASSIGN(const int32_t tokens, AddPicture(rest));
  Show(fmt::format("{}: {} tokens, with the next message\n", rest, tokens));
  return OkStatus();
}

Status Chat::Save(const std::string& rest) {
  if (rest.empty()) return InvalidArgument("/save needs the name of a file");
  if (!conversation_.is_chat()) return InvalidArgument("only chats can be saved");
  const std::string json = conversation_.ToJson();
  REPRISE_TRY(WriteFileAtomically(PathOf(rest), std::as_bytes(std::span(json))));
  Show("saved to " + rest + "\n");
  return OkStatus();
}

Status Chat::Load(const std::string& rest) {
  if (rest.empty()) return InvalidArgument("/load needs the name of a file");
  if (!conversation_.is_chat()) return InvalidArgument("only chats can be loaded");
  REPRISE_ASSIGN(const std::string json, ReadFile(PathOf(rest), kFileBytesMax));
  if (const Status read = conversation_.FromJson(json); !read.ok()) return read.Annotate(rest);
  auto next = conversation_.NextTurn();
  session_.Prepare(next.ok() ? std::move(*next) : GenerateRequest(), editor_ == nullptr);
  Show("loaded " + rest + "\n");
  return OkStatus();
}

Status Chat::Regenerate(const std::string&) {
  auto question = conversation_.Unask();
  if (!question) return InvalidArgument("there is no message to answer again");
  return Reply(std::move(*question), session_.options().sampling.seed + ++attempts_);
}

// Without a text, a person gets the old one to change; a pipe has nothing to change it with.
Status Chat::Edit(const std::string& rest) {
  if (rest.empty() && editor_ == nullptr) return InvalidArgument("/edit needs the new message");
  auto question = conversation_.Unask();
  if (!question) return InvalidArgument("there is no message to change");
  attempts_ = 0;
  pictures_ = std::move(question->pictures);
  if (!rest.empty()) return Talk(rest);
  draft_ = std::move(question->text);
  return OkStatus();
}

Status Chat::System(const std::string& rest) {
  if (rest.empty()) {
    Show(conversation_.system().empty() ? "(none)\n" : conversation_.system() + "\n");
    return OkStatus();
  }
  conversation_.SetSystem(rest == "-" ? "" : rest);
  return OkStatus();
}

Status Chat::Set(const std::string& rest) {
  if (rest.empty()) {
    Show(DescribeSettings(session_.options()));
    return OkStatus();
  }
  const size_t space = rest.find(' ');
  if (space == rest.npos) return InvalidArgument("/set needs a name and a value");
  return ChangeSetting(rest.substr(0, space), std::string(Trim(rest.substr(space))),
                       session_.vocab_size(), &session_.options());
}

Status Chat::Stats(const std::string&) {
  Show(session_.statistics().empty() ? "no reply yet\n" : session_.statistics() + "\n");
  return OkStatus();
}

Status Chat::Cache(const std::string&) {
  Show(session_.DescribeCache());
  return OkStatus();
}

}  // namespace reprise::cli
