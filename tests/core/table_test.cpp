#include "moestro/core/table.h"

#include <gtest/gtest.h>

#include "moestro/core/error.h"

namespace moestro {
namespace {

Table sample() {
  Table table({"name", "size"}, {Align::left, Align::right});
  table.row({"a", "1"});
  table.rule();
  table.row({"größer", "1,000"});
  return table;
}

TEST(Table, AlignsColumnsByCodePoints) {
  EXPECT_EQ(sample().to_string(),
            "name     size\n"
            "------  -----\n"
            "a           1\n"
            "------  -----\n"
            "größer  1,000\n");
}

TEST(Table, LeavesNoTrailingSpaces) {
  Table table({"a", "b"}, {Align::left, Align::left});
  table.row({"x", ""});
  EXPECT_EQ(table.to_string(), "a  b\n-  -\nx\n");
}

TEST(Table, WritesMarkdown) {
  EXPECT_EQ(sample().to_markdown(),
            "| name | size |\n| --- | ---: |\n| a | 1 |\n| größer | 1,000 |\n");
}

TEST(Table, RejectsRowsOfAnotherWidth) {
  Table table({"a"}, {Align::left});
  EXPECT_THROW(table.row({"x", "y"}), Error);
  EXPECT_THROW(Table({"a"}, {}), Error);
}

}  // namespace
}  // namespace moestro
