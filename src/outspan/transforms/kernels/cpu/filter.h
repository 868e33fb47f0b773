// Neighbourhoods: 3x3, 5x5 and the resampling of a box. Included by rows.cpp inside its namespace.

// Pillow's SMOOTH: (sum of the nine + 4 * centre) / 13, rounded. The quotient is never near a half,
// so its floats and these integers agree; with 5042 for 2^16 / 13 the high half is exact up to 13 * 255.
constexpr uint16_t thirteenth(uint16_t sum) { return uint16_t((uint32_t(uint16_t(sum + 6)) * 5042u) >> 16); }

constexpr bool thirteenth_is_exact() {
    for (int sum = 0; sum <= 13 * 255; ++sum)
        if (thirteenth(uint16_t(sum)) != (2 * sum + 13) / 26) return false;
    return true;
}
static_assert(thirteenth_is_exact(), "the multiplication must equal the division for every sum of bytes");

// Writes the border of width `edge` as it came: Pillow filters only where the whole kernel fits.
void copy_border(const uint8_t *in, uint8_t *out, const Shape &shape, int edge) {
    const int width = shape.width, height = shape.height;
    std::memcpy(out, in, size_t(edge) * width);
    for (int y = edge; y < height - edge; ++y)
        for (int x = 0; x < edge; ++x) {
            const int64_t left = int64_t(y) * width + x, right = int64_t(y) * width + width - 1 - x;
            out[left] = in[left], out[right] = in[right];
        }
    const int64_t below = int64_t(height - edge) * width;
    std::memcpy(out + below, in + below, size_t(edge) * width);
}

// Calls `finish(smoothed, pixel)` for every pixel that has all its neighbours. It runs over the plane as one line:
// what it writes at the ends of rows, copy_border mends.
template <typename Finish>
void smooth_with(const uint8_t *in, uint8_t *out, const Shape &shape, const Finish &finish) {
    const int64_t width = shape.width, plane = shape.plane();
    if (shape.width < 3 || shape.height < 3) {
        std::memcpy(out, in, size_t(shape.bytes()));
        return;
    }
    constexpr int block = 1024;
    uint16_t column[block + 2];  // the sums of three pixels above one another, shared by three neighbours
    for (int c = 0; c < shape.channels; ++c) {
        for (int64_t start = width + 1; start < plane - width - 1; start += block) {
            const int count = int(plane - width - 1 - start < block ? plane - width - 1 - start : block);
            const uint8_t *RESTRICT middle = in + c * plane + start;
            const uint8_t *RESTRICT above = middle - width - 1, *RESTRICT below = middle + width - 1;
            uint8_t *RESTRICT to = out + c * plane + start;
            for (int i = 0; i < count + 2; ++i) column[i] = uint16_t(above[i] + middle[i - 1] + below[i]);
            for (int i = 0; i < count; ++i) {
                const uint16_t sum = uint16_t(column[i] + column[i + 1] + column[i + 2] + 4 * middle[i]);
                to[i] = finish(int16_t(thirteenth(sum)), int16_t(middle[i]));
            }
        }
        copy_border(in + c * plane, out + c * plane, shape, 1);
    }
}

void smooth(const uint8_t *in, uint8_t *out, const Shape &shape) {
    smooth_with(in, out, shape, [](int16_t smoothed, int16_t) { return uint8_t(smoothed); });
}

void sharpness(const uint8_t *in, uint8_t *out, const Shape &shape, float factor) {
    const Blend blend = make_blend(factor);
    if (blend.exact)
        smooth_with(in, out, shape, [blend](int16_t smoothed, int16_t pixel) { return blend_fixed(smoothed, pixel, blend); });
    else
        smooth_with(in, out, shape,
                    [blend](int16_t smoothed, int16_t pixel) { return blend_float(smoothed, pixel, blend.alpha); });
}

// Pillow's BLUR: the 16 pixels on the edge of 5x5, averaged; sixteenths are exact in its floats.
void blur(const uint8_t *in, uint8_t *out, const Shape &shape) {
    const int64_t width = shape.width, plane = shape.plane();
    if (shape.width < 5 || shape.height < 5) {
        std::memcpy(out, in, size_t(shape.bytes()));
        return;
    }
    for (int c = 0; c < shape.channels; ++c) {
        const uint8_t *RESTRICT p = in + c * plane;
        uint8_t *RESTRICT to = out + c * plane;
        for (int64_t i = 2 * width + 2; i < plane - 2 * width - 2; ++i) {
            const uint8_t *top = p + i - 2 * width, *bottom = p + i + 2 * width;
            const uint16_t sum = uint16_t(top[-2] + top[-1] + top[0] + top[1] + top[2] + p[i - width - 2] +
                                          p[i - width + 2] + p[i - 2] + p[i + 2] + p[i + width - 2] + p[i + width + 2] +
                                          bottom[-2] + bottom[-1] + bottom[0] + bottom[1] + bottom[2]);
            to[i] = uint8_t((sum + 8) >> 4);
        }
        copy_border(p, to, shape, 2);
    }
}

// Pillow's bilinear resampling of the span [from, until) to `size` pixels: at most three taps, in 22 bits.
struct Tap {
    int start;
    int32_t weights[3];
};

Tap make_tap(int index, float from, float until, int size) {
    const double scale = double(until - from) / size;  // never above 1 here, so the support is one pixel
    const double centre = from + (index + 0.5) * scale;
    int start = int(centre - 1.0 + 0.5), stop = int(centre + 1.0 + 0.5);
    if (start < 0) start = 0;
    if (stop > size) stop = size;
    double weights[3] = {0, 0, 0}, total = 0;
    for (int i = 0; i < stop - start; ++i) {
        const double distance = std::fabs(i + start - centre + 0.5);
        weights[i] = distance < 1.0 ? 1.0 - distance : 0.0;
        total += weights[i];
    }
    Tap tap = {start, {0, 0, 0}};
    for (int i = 0; i < stop - start; ++i) tap.weights[i] = int32_t(0.5 + weights[i] / total * (1 << 22));
    // A tap of weight 0 beyond the edge must not be read: move the window back inside.
    while (tap.start > 0 && tap.start + 3 > size) {
        tap.weights[2] = tap.weights[1], tap.weights[1] = tap.weights[0], tap.weights[0] = 0;
        --tap.start;
    }
    return tap;
}

inline uint8_t weigh(int a, int b, int c, const int32_t weights[3]) {
    return uint8_t((a * weights[0] + b * weights[1] + c * weights[2] + (1 << 21)) >> 22);
}

void resized_crop(const uint8_t *in, uint8_t *out, const Shape &shape, const float *place, uint8_t *resized) {
    const int width = shape.width, height = shape.height;
    const double area = 0.08 + 0.92 * double(place[2]);
    const double ratio = 0.75 * std::pow(16.0 / 9.0, double(place[3]));
    const double w_wish = std::sqrt(area * width * height * ratio), h_wish = std::sqrt(area * width * height / ratio);
    const double w = w_wish < width ? w_wish : width, h = h_wish < height ? h_wish : height;
    const double x0 = double(place[0]) * (width - w), y0 = double(place[1]) * (height - h);
    const float left = float(x0), right = float(x0 + w), top = float(y0), bottom = float(y0 + h);
    const int second = width > 1 ? 1 : 0, third = width > 2 ? 2 : second;  // narrow images have fewer taps
    for (int start = 0; start < width; start += 256) {
        const int columns = width - start < 256 ? width - start : 256;
        Tap taps[256];
        for (int x = 0; x < columns; ++x) taps[x] = make_tap(start + x, left, right, width);
        for (int64_t row = 0; row < int64_t(shape.channels) * height; ++row)
            for (int x = 0; x < columns; ++x) {
                const uint8_t *from = in + row * width + taps[x].start;
                resized[row * width + start + x] = weigh(from[0], from[second], from[third], taps[x].weights);
            }
    }
    const int64_t below = height > 1 ? width : 0, twice = height > 2 ? 2 * width : below;
    for (int y = 0; y < height; ++y) {
        const Tap tap = make_tap(y, top, bottom, height);
        for (int c = 0; c < shape.channels; ++c) {
            const uint8_t *RESTRICT from = resized + c * shape.plane() + int64_t(tap.start) * width;
            uint8_t *RESTRICT to = out + c * shape.plane() + int64_t(y) * width;
            for (int x = 0; x < width; ++x) to[x] = weigh(from[x], from[x + below], from[x + twice], tap.weights);
        }
    }
}
