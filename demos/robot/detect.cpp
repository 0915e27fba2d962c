// Detect boxes in scans without Python, with a package from `perceive export WEIGHTS --format aoti`.
//
//   detect DETECTOR.pt2 SCAN.bin ...
//
// A scan has float32 x, y, z (metres, LiDAR frame) and intensity in [0, 1] per point, as in KITTI. The program prints
// one line per box: scan, class number, score, x, y, z, length, width, height, yaw. Build (see CMakeLists.txt):
//
//   cmake -B build -DCMAKE_PREFIX_PATH="$(python -c 'import torch; print(torch.utils.cmake_prefix_path)')"
//   cmake --build build

#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

namespace {

// Read the points (N, 4) of a file.
at::Tensor read_scan(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(path + ": cannot be read");
  const auto bytes = static_cast<int64_t>(file.tellg());
  if (bytes % 16 != 0) throw std::runtime_error(path + ": not four float32 a point");
  at::Tensor points = at::empty({bytes / 16, 4}, at::kFloat);
  file.seekg(0);
  file.read(reinterpret_cast<char*>(points.data_ptr<float>()), bytes);
  return points;
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: %s DETECTOR.pt2 SCAN.bin ...\n", arguments[0]);
    return 2;
  }
  try {
    const c10::InferenceMode inference;
    torch::inductor::AOTIModelPackageLoader detector(arguments[1]);
    for (int scan = 2; scan < count; ++scan) {
      std::vector<at::Tensor> inputs{read_scan(arguments[scan])};
      const std::vector<at::Tensor> found = detector.run(inputs);
      const auto boxes = found[0].accessor<float, 2>();
      const auto scores = found[1].accessor<float, 1>();
      const auto labels = found[2].accessor<int64_t, 1>();
      for (int64_t box = 0; box < boxes.size(0); ++box) {
        std::printf("%s %lld %.5f", arguments[scan], static_cast<long long>(labels[box]), scores[box]);
        for (int64_t field = 0; field < 7; ++field) std::printf(" %.5f", boxes[box][field]);
        std::printf("\n");
      }
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
