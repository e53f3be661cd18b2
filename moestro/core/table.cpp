#include "moestro/core/table.h"

#include <algorithm>
#include <utility>

#include "moestro/core/error.h"

namespace moestro {
namespace {

std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

}  // namespace

Table::Table(std::vector<std::string> header, std::vector<Align> align)
    : header_(std::move(header)), align_(std::move(align)) {
  MOESTRO_CHECK(header_.size() == align_.size(), "a table needs one alignment per column");
}

void Table::row(std::vector<std::string> cells) {
  MOESTRO_CHECK(cells.size() == header_.size(), "row of {} cells in a table of {} columns",
                cells.size(), header_.size());
  rows_.push_back(std::move(cells));
}

void Table::rule() {
  rows_.emplace_back();
}

std::string Table::to_string() const {
  std::vector<std::size_t> widths(header_.size());
  for (std::size_t c = 0; c < header_.size(); ++c) {
    widths[c] = width(header_[c]);
    for (const auto& cells : rows_) {
      if (!cells.empty()) widths[c] = std::max(widths[c], width(cells[c]));
    }
  }
  std::string text;
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string out;
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const std::string padding(widths[c] - width(cells[c]), ' ');
      out += align_[c] == Align::right ? padding + cells[c] : cells[c] + padding;
      if (c + 1 < cells.size()) out += "  ";
    }
    text += out.substr(0, out.find_last_not_of(' ') + 1) + "\n";
  };
  std::vector<std::string> rule;
  for (const std::size_t w : widths) rule.emplace_back(w, '-');
  line(header_);
  line(rule);
  for (const auto& cells : rows_) line(cells.empty() ? rule : cells);
  return text;
}

std::string Table::to_markdown() const {
  std::string text = "|";
  for (const auto& cell : header_) text += " " + cell + " |";
  text += "\n|";
  for (const Align a : align_) text += a == Align::right ? " ---: |" : " --- |";
  text += "\n";
  for (const auto& cells : rows_) {
    if (cells.empty()) continue;
    text += "|";
    for (const auto& cell : cells) text += " " + cell + " |";
    text += "\n";
  }
  return text;
}

}  // namespace moestro
