// Fill-spill-merge by RichDEM (R. Barnes), for `python -m bench fill-spill-merge --peer`. Build:
//   git clone https://github.com/r-barnes/richdem && g++ -O3 -std=c++17 -DNDEBUG -DNOPROGRESS
//     -DRICHDEM_GIT_HASH='""' -DRICHDEM_COMPILE_TIME='""' -I richdem/include
//     bench/fill_spill_merge_of_richdem.cpp richdem/src/richdem.cpp richdem/src/random.cpp -o peer
// Run: peer HEIGHTS ROWS COLS RAIN DEPTHS, raw files of float64; outlets are the cells at the edge.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <richdem/depressions/fill_spill_merge.hpp>

namespace dephier = richdem::dephier;

int main(int count, char **words) {
  if (count != 6) return 2;
  const int rows = std::atoi(words[2]), cols = std::atoi(words[3]);
  const size_t cells = static_cast<size_t>(rows) * cols;
  richdem::Array2D<double> heights(cols, rows), water(cols, rows, std::atof(words[4]));
  FILE *file = std::fopen(words[1], "rb");
  if (!file || std::fread(heights.data(), 8, cells, file) != cells) return 1;
  std::fclose(file);
  richdem::Array2D<dephier::dh_label_t> label(cols, rows, dephier::NO_DEP);
  richdem::Array2D<richdem::flowdir_t> directions(cols, rows, richdem::NO_FLOW);
  label.setEdges(dephier::OCEAN);
  water.setEdges(0);
  const auto begin = std::chrono::steady_clock::now();
  auto found = dephier::GetDepressionHierarchy<double, richdem::Topology::D8>(heights, label, directions);
  dephier::FillSpillMerge(heights, label, directions, found, water);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::printf("%.2f\n", took.count());
  file = std::fopen(words[5], "wb");
  return !file || std::fwrite(water.data(), 8, cells, file) != cells || std::fclose(file);
}
