#pragma once
// Aligned text tables for people.
//
//   Table table({"component", "parameters"}, {Align::left, Align::right});
//   table.row({"embedding", "926,679,040"});
//   std::string text = table.to_string();

#include <string>
#include <vector>

namespace moestro {

enum class Align { left, right };

class Table {
 public:
  Table(std::vector<std::string> header, std::vector<Align> align);
  /// Adds a row. Errors: internal, if it has another number of cells than the header.
  void row(std::vector<std::string> cells);
  /// Adds a horizontal line.
  void rule();
  /// Two spaces between columns, no trailing spaces, widths counted in code points.
  [[nodiscard]] std::string to_string() const;
  /// The same as a Markdown table.
  [[nodiscard]] std::string to_markdown() const;

 private:
  std::vector<std::string> header_;
  std::vector<Align> align_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

}  // namespace moestro
