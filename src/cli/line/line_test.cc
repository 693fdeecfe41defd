// SPDX-License-Identifier: Apache-2.0
// Proves that keys are read however their bytes are cut, that the cursor moves by characters as
// people see them, that a drawing stands where the last one stood, and what the history keeps.
// tests/cli/chat_test.py does the same through a terminal.
#include "cli/line/line.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/line/history.h"
#include "cli/line/key_reader.h"
#include "cli/line/screen.h"
#include "cli/line/text_width.h"

namespace reprise::cli {
namespace {

namespace fs = std::filesystem;
using Kind = Key::Kind;

std::vector<Key> KeysOf(std::string_view bytes, size_t piece) {
  KeyReader reader;
  std::vector<Key> keys;
  while (!bytes.empty()) {
    reader.Feed(bytes.substr(0, piece), &keys);
    bytes.remove_prefix(std::min(piece, bytes.size()));
  }
  return keys;
}

TEST(KeyReaderTest, BytesBecomeKeysHoweverTheyAreCut) {
  const std::string bytes =
      "h\xC3\xA4\xF0\x9F\x98\x80\x1b[A\x1bOB\x1b[1;5C\x1b[3~\x7f\r\x03\x04\x1b[99;99;99Zx\x1b\r";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, bytes.size()}) {
    std::string text;
    std::vector<Kind> kinds;
    for (const Key& key : KeysOf(bytes, piece)) {
      text += key.text;
      if (key.kind != Kind::kText) kinds.push_back(key.kind);
    }
    EXPECT_EQ(text, "h\xC3\xA4\xF0\x9F\x98\x80x") << piece;
    EXPECT_EQ(kinds, (std::vector{Kind::kUp, Kind::kDown, Kind::kWordRight, Kind::kDelete,
                                  Kind::kBackspace, Kind::kEnter, Kind::kInterrupt,
                                  Kind::kEndOfInput, Kind::kNewline}))
        << piece;
  }
}

TEST(KeyReaderTest, APasteIsOneKeyWithItsLineBreaks) {
  const std::string bytes = "\x1b[200~one\rtwo\r\nthree\tx\x1b[31m\x03\x1b[201~y";
  for (const size_t piece : {size_t{1}, size_t{5}, bytes.size()}) {
    const std::vector<Key> keys = KeysOf(bytes, piece);
    ASSERT_EQ(keys.size(), 2u) << piece;
    EXPECT_EQ(keys[0].kind, Kind::kPaste);
    EXPECT_EQ(keys[0].text, "one\ntwo\nthree\tx[31m");
    EXPECT_EQ(keys[1].text, "y");
  }
}

TEST(KeyReaderTest, APasteThatIsTooLargeIsCutAndEnds) {
  std::vector<Key> keys = KeysOf(
      "\x1b[200~" + std::string(KeyReader::kPasteBytesMax + 1000, 'a') + "\x1b[201~b", 1 << 20);
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].text.size(), KeyReader::kPasteBytesMax);
  EXPECT_EQ(keys[1].text, "b");
}

TEST(KeyReaderTest, WhatIsNotTextIsNotTaken) {
  EXPECT_EQ(CleanText("a\x01\x1b]0;title\x07 b\xFF\xC2\x9B\xED\xA0\x80z"),
            "a]0;title b\uFFFD\uFFFD\uFFFD\uFFFDz");
  KeyReader reader;
  std::vector<Key> keys;
  reader.Feed("\x1b", &keys);
  EXPECT_TRUE(reader.waits());
  reader.Settle();  // the Escape key alone
  reader.Feed("[A", &keys);
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys[0].text, "[A");
}

// e with an accent of its own, a family joined of three, a flag of two letters.
constexpr char kAccent[] = "e\u0301";
constexpr char kFamily[] = "\U0001F468\u200D\U0001F469\u200D\U0001F467";
constexpr char kFlag[] = "\U0001F1E9\U0001F1EA";

TEST(TextWidthTest, CharactersAreWhatPeopleSee) {
  for (const std::string text : {"a", "\u00e4", "\u4e16", kAccent, kFamily, kFlag}) {
    EXPECT_EQ(FirstCluster(text + "x").bytes, text.size()) << text;
    EXPECT_EQ(ClusterBefore("x " + text, 2 + text.size()), 2u) << text;
  }
  EXPECT_EQ(ColumnsOf(std::string("a\u00e4\u4e16") + kAccent), 5);
  EXPECT_EQ(ColumnsOf(kFlag), 2);
  EXPECT_EQ(FirstCluster("\xFFx").bytes, 1u);
  std::string marks = "a";  // a hostile character has a bound
  for (int i = 0; i < 1000; ++i) marks += "\u0301";
  EXPECT_LT(FirstCluster(marks).bytes, 100u);
}

TEST(LineTest, TheCursorMovesByCharacters) {
  Line line;
  line.Insert(std::string("a") + kAccent + kFamily);
  line.Left();
  EXPECT_EQ(line.cursor(), 1 + std::string(kAccent).size());
  line.Left();
  EXPECT_EQ(line.cursor(), 1u);
  line.Delete();
  EXPECT_EQ(line.text(), std::string("a") + kFamily);
  line.Right();
  line.Backspace();
  EXPECT_EQ(line.text(), "a");
  line.Right();
  line.Delete();  // at the end: nothing
  EXPECT_EQ(line.text(), "a");
}

TEST(LineTest, WordsAreCutAndComeBack) {
  Line line;
  line.Insert("tell me, \u00fcber uns");
  line.CutWord();
  EXPECT_EQ(line.text(), "tell me, \u00fcber ");
  line.CutWord();
  EXPECT_EQ(line.text(), "tell me, ");
  line.Yank();
  EXPECT_EQ(line.text(), "tell me, \u00fcber ");
  line.Home();
  line.CutNextWord();
  EXPECT_EQ(line.text(), " me, \u00fcber ");
  line.WordRight();
  EXPECT_EQ(line.cursor(), 3u);
  line.CutToStart();
  line.CutToEnd();
  EXPECT_EQ(line.text(), "");
  line.Yank();
  EXPECT_EQ(line.text(), ", \u00fcber ");
}

TEST(LineTest, RowsOfAMessage) {
  Line line;
  line.Insert("first row\nx\nthird row");
  EXPECT_TRUE(line.Up());
  EXPECT_EQ(line.cursor(), 11u);  // x is shorter
  EXPECT_TRUE(line.Up());
  EXPECT_FALSE(line.Up());
  EXPECT_TRUE(line.Down());
  line.Home();
  EXPECT_EQ(line.cursor(), 10u);
  line.End();
  line.CutToEnd();  // joins the next row
  EXPECT_EQ(line.text(), "first row\nxthird row");
  EXPECT_FALSE(line.Down());
}

TEST(LineTest, ALineHasABound) {
  Line line;
  const std::string much(Line::kBytesMax, 'a');
  EXPECT_TRUE(line.Insert(much));
  EXPECT_FALSE(line.Insert("b"));
  EXPECT_EQ(line.text().size(), much.size());
}

TEST(ScreenTest, RowsAreCutAtTheWidthOfTheTerminal) {
  Screen screen;
  Line line;
  line.Insert("abcdefgh");
  EXPECT_EQ(screen.Draw("> ", line, {6, 10}), "\r\x1b[J> abcd\r\n  efgh\r\n  \r\x1b[2C");
  line.Set("ab");
  // From the third row up to the first.
  EXPECT_EQ(screen.Draw("> ", line, {6, 10}), "\x1b[2A\r\x1b[J> ab\r\x1b[4C");
  line.Set("a\u4e16\u4e16");  // the second does not fit in the last column
  EXPECT_EQ(screen.Draw("> ", line, {6, 10}), "\r\x1b[J> a\u4e16\r\n  \u4e16\r\x1b[4C");
}

// A terminal that became narrower has cut the rows of the last drawing.
TEST(ScreenTest, AfterAResizeTheDrawingBeginsWhereItBegan) {
  Screen screen;
  Line line;
  line.Insert(std::string(30, 'a') + "\nb");
  screen.Draw("> ", line, {40, 10});
  EXPECT_EQ(screen.Draw("> ", line, {20, 10}).substr(0, 5), "\x1b[2A\r");  // 32 columns: two rows
}

TEST(ScreenTest, AMessageLargerThanTheScreenIsShownAroundTheCursor) {
  Screen screen;
  Line line;
  for (int i = 0; i < 1000; ++i) line.Insert("row " + std::to_string(i) + "\n");
  const std::string drawn = screen.Draw("> ", line, {40, 10});
  EXPECT_EQ(std::count(drawn.begin(), drawn.end(), '\n'), 9);
  EXPECT_NE(drawn.find("row 999"), std::string::npos);
  for (int i = 0; i < 1000; ++i) line.Up();
  EXPECT_NE(screen.Draw("> ", line, {40, 10}).find("> row 0"), std::string::npos);
}

class HistoryTest : public testing::Test {
 protected:
  HistoryTest() : folder_(fs::path(testing::TempDir()) / "history_test") {
    fs::remove_all(folder_);
  }
  ~HistoryTest() override { fs::remove_all(folder_); }
  std::string path() const { return folder_ / "state" / "history"; }
  const fs::path folder_;
};

TEST_F(HistoryTest, EntriesOutliveTheProcessAndBelongToTheirOwner) {
  {
    History history(path());
    for (const char* entry : {"one", "two\nrows \\n", "two\nrows \\n", "", "three"}) {
      history.Add(entry);
    }
  }
  struct stat status = {};
  ASSERT_EQ(::stat(path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const History again(path());
  ASSERT_EQ(again.size(), 3u);
  EXPECT_EQ(again.at(0), "one");
  EXPECT_EQ(again.at(1), "two\nrows \\n");
  EXPECT_EQ(again.at(2), "three");
}

TEST_F(HistoryTest, ItIsBoundedOnDisk) {
  {
    History history(path());
    history.Add(std::string(History::kEntryBytesMax + 1, 'a'));
    EXPECT_EQ(history.size(), 0u);
    for (size_t i = 0; i < 2 * History::kEntriesMax + 10; ++i) history.Add(std::to_string(i));
    EXPECT_EQ(history.size(), History::kEntriesMax);
  }
  { const History trimmed(path()); }
  std::ifstream file(path());
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), long(History::kEntriesMax));
}

TEST_F(HistoryTest, AFileOfAnotherKindIsNoTrouble) {
  fs::create_directories(fs::path(path()).parent_path());
  std::ofstream(path()) << "ok\n\x1b[31mred\n" << std::string(100000, 'x') << "\nlast";
  {
    History history(path());
    ASSERT_EQ(history.size(), 3u);
    EXPECT_EQ(history.at(1), "[31mred");
  }
  fs::remove(path());
  fs::create_directory(path());
  History history(path());
  history.Add("kept in memory");
  EXPECT_EQ(history.at(0), "kept in memory");
}

}  // namespace
}  // namespace reprise::cli
