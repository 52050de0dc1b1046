"""Each operation of RandAugment beside Pillow's, called as torchvision calls it; and the blur beside NumPy.

    vary_image_test.py VARY_IMAGE

Exits with 77 (skipped) where numpy or Pillow are not there.
"""
import math
import subprocess
import sys
import unittest

try:
    import numpy
    from PIL import Image, ImageEnhance, ImageOps
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else ""


def affine(image, angle, translate, shear, center):
    """torchvision.transforms.functional.affine: the matrix of _get_inverse_affine_matrix."""
    rotation, shear_x, shear_y = math.radians(angle), math.radians(shear[0]), math.radians(shear[1])
    a = math.cos(rotation - shear_y) / math.cos(shear_y)
    b = -math.cos(rotation - shear_y) * math.tan(shear_x) / math.cos(shear_y) - math.sin(rotation)
    c = math.sin(rotation - shear_y) / math.cos(shear_y)
    d = -math.sin(rotation - shear_y) * math.tan(shear_x) / math.cos(shear_y) + math.cos(rotation)
    matrix = [d, -b, 0.0, -c, a, 0.0]
    matrix[2] += matrix[0] * (-center[0] - translate[0]) + matrix[1] * (-center[1] - translate[1]) + center[0]
    matrix[5] += matrix[3] * (-center[0] - translate[0]) + matrix[4] * (-center[1] - translate[1]) + center[1]
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.NEAREST)


def middle(image):
    return (image.width * 0.5, image.height * 0.5)


# In the order of images/augment/rand_augment.h; strengths of both signs where there are such.
OPERATIONS = [
    ("identity", lambda image, _: image, [0]),
    ("shear_x", lambda image, s: affine(image, 0, (0, 0), (math.degrees(math.atan(s)), 0), (0, 0)), [-0.3, 0.09, 0.21]),
    ("shear_y", lambda image, s: affine(image, 0, (0, 0), (0, math.degrees(math.atan(s))), (0, 0)), [-0.17, 0.3]),
    ("translate_x", lambda image, s: affine(image, 0, (int(s), 0), (0, 0), middle(image)), [-7.9, 3.2, 0.5]),
    ("translate_y", lambda image, s: affine(image, 0, (0, int(s)), (0, 0), middle(image)), [-11.1, 5]),
    ("rotate", lambda image, s: image.rotate(s, Image.Resampling.NEAREST), [-30, -9, 0, 17.5]),
    ("brightness", lambda image, s: ImageEnhance.Brightness(image).enhance(1 + s), [-0.9, -0.27, 0.27, 0.9]),
    ("color", lambda image, s: ImageEnhance.Color(image).enhance(1 + s), [-0.9, -0.27, 0.27, 0.9]),
    ("contrast", lambda image, s: ImageEnhance.Contrast(image).enhance(1 + s), [-0.9, -0.27, 0.27, 0.9]),
    ("sharpness", lambda image, s: ImageEnhance.Sharpness(image).enhance(1 + s), [-0.9, -0.27, 0.27, 0.9]),
    ("posterize", lambda image, s: ImageOps.posterize(image, int(s)), [8, 7, 6, 5, 4]),
    ("solarize", ImageOps.solarize, [255, 178.5, 0]),
    ("auto_contrast", lambda image, _: ImageOps.autocontrast(image), [0]),
    ("equalize", lambda image, _: ImageOps.equalize(image), [0]),
]


def pictures():
    """Smooth ones and noise, of both numbers of channels and of sides that are no multiples of anything."""
    draw = numpy.random.default_rng(3)
    y, x = numpy.mgrid[0:37, 0:53]
    waves = [128 + 60 * numpy.sin(x / 5 + c) + 50 * numpy.cos(y / (3 + c)) for c in range(3)]
    yield numpy.stack(waves, -1).clip(0, 255).astype(numpy.uint8)
    yield draw.integers(0, 256, (24, 31, 3), dtype=numpy.uint8)
    yield draw.integers(60, 130, (28, 28), dtype=numpy.uint8)
    yield numpy.full((9, 12), 77, dtype=numpy.uint8)
    yield draw.integers(0, 256, (2, 2, 3), dtype=numpy.uint8)
    yield (waves[0] / 2).astype(numpy.uint8)


def vary(operation, strength, pixels):
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    command = [PROGRAM, str(operation), repr(float(strength)), *map(str, planes.shape)]
    made = subprocess.run(command, input=planes.tobytes(), capture_output=True, timeout=60, check=True).stdout
    varied = numpy.frombuffer(made, dtype=numpy.uint8).reshape(planes.shape)
    return varied[0] if pixels.ndim == 2 else varied.transpose(1, 2, 0)


class VaryImage(unittest.TestCase):
    def test_operations_make_the_pixels_that_pillow_makes(self):
        for number, (name, reference, strengths) in enumerate(OPERATIONS):
            for pixels in pictures():
                for strength in strengths:
                    with self.subTest(operation=name, strength=strength, shape=pixels.shape):
                        expected = numpy.asarray(reference(Image.fromarray(pixels), strength))
                        numpy.testing.assert_array_equal(vary(number, strength, pixels), expected)

    def test_the_blur_is_a_gaussian_with_its_border_gone_on(self):
        for pixels in pictures():
            for deviation in (0.1, 0.8, 2.0):
                radius = math.ceil(3 * deviation)
                weights = numpy.exp(-numpy.arange(-radius, radius + 1) ** 2 / (2 * deviation ** 2))
                weights /= weights.sum()
                planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
                wide = numpy.pad(planes.astype(float), ((0, 0), (radius, radius), (radius, radius)), mode="edge")
                for axis in (1, 2):
                    wide = numpy.apply_along_axis(numpy.convolve, axis, wide, weights, mode="valid")
                found = vary("blur", deviation, pixels)
                found = found[None] if pixels.ndim == 2 else found.transpose(2, 0, 1)
                # Where a value lies in the middle, either neighbour is right.
                self.assertLessEqual(numpy.abs(found - wide).max(), 0.501)


if __name__ == "__main__":
    unittest.main()
