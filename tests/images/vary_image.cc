// Varies an image in one way, for vary_image_test.py.
//
//   vary_image OPERATION STRENGTH CHANNELS HEIGHT WIDTH <planes >planes     OPERATION: its number, or `blur`
#include <cstdio>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "images/augment/rand_augment.h"

int main(int argc, char** argv) {
  using namespace slackline::images;
  int operation = 0;
  double strength = 0;
  ImageShape shape;
  const bool read = argc == 6 && absl::SimpleAtod(argv[2], &strength) && absl::SimpleAtoi(argv[3], &shape.channels) &&
                    absl::SimpleAtoi(argv[4], &shape.height) && absl::SimpleAtoi(argv[5], &shape.width);
  const bool blurred = read && std::string(argv[1]) == "blur";
  std::vector<uint8_t> image{std::istreambuf_iterator<char>(std::cin), {}}, scratch;
  if (!read || (!blurred && !absl::SimpleAtoi(argv[1], &operation)) || image.size() != shape.values()) {
    std::fprintf(stderr, "vary_image: wrong use\n");
    return 2;
  }
  if (blurred) {
    Blur(strength, shape, image);
  } else {
    Perform(static_cast<Operation>(operation), strength, shape, image, scratch);
  }
  std::cout.write(reinterpret_cast<const char*>(image.data()), static_cast<std::streamsize>(image.size()));
  return 0;
}
