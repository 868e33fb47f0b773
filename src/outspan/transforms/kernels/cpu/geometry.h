// Where a pixel comes from: affine maps, flips, crops, rectangles. Included by rows.cpp inside its namespace.

#ifdef OUTSPAN_AVX512
// A bit for each of 64 columns from `start` on that lies in [low, high).
inline __mmask64 columns_within(int start, int low, int high) {
    auto below = [start](int limit) {
        const int bits = limit - start;
        return bits <= 0 ? 0ull : bits >= 64 ? ~0ull : (1ull << bits) - 1;
    };
    return below(high) & ~below(low);
}

// The last block of 64 columns begins where it ends with the row: a store of a part of a block that is not in the cache is
// several times slower than a store of all of it. Only images that are narrower have blocks of fewer columns.
inline int block_start(int x, int width) { return x + 64 <= width || width < 64 ? x : width - 64; }

inline void store_block(uint8_t *out, __m512i pixels, int columns) {
    if (columns == 64) _mm512_storeu_si512(out, pixels);
    else _mm512_mask_storeu_epi8(out, columns_within(0, 0, columns), pixels);
}
#endif

// Writes one row, moved by `shift` (out[x] = in[x + shift]), black where it comes from outside. `in` is null for a row
// outside, which is black. Callers take one channel after another: in the order of the memory this is twice as fast.
inline void shift_row(const uint8_t *in, uint8_t *out, int width, int shift) {
    const int from = shift < 0 ? (-shift < width ? -shift : width) : 0;
    const int until = !in ? 0 : shift > 0 ? (width - shift > 0 ? width - shift : 0) : width;
    if (from >= until) {
        std::memset(out, 0, size_t(width));
        return;
    }
    if (from) std::memset(out, 0, size_t(from));
    std::memcpy(out + from, in + from + shift, size_t(until - from));
    if (until < width) std::memset(out + until, 0, size_t(width - until));
}

inline bool inside(int position, int size) { return uint32_t(position) < uint32_t(size); }

inline int coordinate(double position) { return position < 0.0 ? -1 : int(position); }

// Any map, in doubles: the positions from the first on, each the sum of those before it.
void walk(const double a[6], const uint8_t *in, uint8_t *out, const Shape &shape, double x_row, double y_row) {
    for (int y = 0; y < shape.height; ++y, x_row += a[1], y_row += a[4]) {
        double xx = x_row, yy = y_row;
        for (int x = 0; x < shape.width; ++x, xx += a[0], yy += a[3]) {
            const int column = coordinate(xx), row = coordinate(yy);
            const bool seen = inside(column, shape.width) && inside(row, shape.height);
            for (int c = 0; c < shape.channels; ++c)
                out[c * shape.plane() + int64_t(y) * shape.width + x] =
                    seen ? in[c * shape.plane() + int64_t(row) * shape.width + column] : 0;
        }
    }
}

// Both off-diagonals 0: Pillow walks the positions in doubles, c + 0.5, then += 1.0, truncated.
void translate(const double a[6], const uint8_t *in, uint8_t *out, const Shape &shape) {
    const int width = shape.width, height = shape.height;
    double x_in = a[2] + 0.5;
    int shift = width;  // nothing visible, until a column is
    bool seen = false;
    for (int x = 0; x < width; ++x, x_in += 1.0) {
        const int from = coordinate(x_in);
        if (!inside(from, width)) continue;
        // The sum rounded up to an integer on the way: a column is skipped or doubled there.
        if (seen && from - x != shift) return walk(a, in, out, shape, a[2] + 0.5, a[5] + 0.5);
        shift = from - x, seen = true;
    }
    for (int c = 0; c < shape.channels; ++c, in += shape.plane()) {
        double y_in = a[5] + 0.5;
        for (int y = 0; y < height; ++y, y_in += 1.0, out += width) {
            const int row = coordinate(y_in);
            shift_row(inside(row, height) ? in + int64_t(row) * width : nullptr, out, width, shift);
        }
    }
}

// a in 16.16 fixed point, half-pixel centres already added.
struct Fixed {
    int32_t a0, a1, a2, a3, a4, a5;
};

void shear_rows(const Fixed &a, const uint8_t *in, uint8_t *out, const Shape &shape) {
    for (int c = 0; c < shape.channels; ++c, in += shape.plane()) {
        int32_t x_in = a.a2, y_in = a.a5;
        for (int y = 0; y < shape.height; ++y, x_in += a.a1, y_in += a.a4, out += shape.width) {
            const bool seen = inside(y_in >> 16, shape.height);
            shift_row(seen ? in + int64_t(y_in >> 16) * shape.width : nullptr, out, shape.width, x_in >> 16);
        }
    }
}

// Column x moves by (a5 + x * a3) >> 16 rows.
#ifdef OUTSPAN_AVX512
template <int channels>
void shear_columns(const Fixed &a, const uint8_t *in, uint8_t *out, const Shape &shape) {
    const int width = shape.width, height = shape.height, columns = width < 64 ? width : 64;
    const int64_t plane = shape.plane();
    for (int start = 0; start < width; start += 64) {
        const int x = block_start(start, width);
        int moves[64], runs = 0;  // runs of columns that move alike; their moves rise or fall throughout
        __mmask64 masks[64];
        for (int i = 0; i < columns; ++i) {
            const int move = (a.a5 + (x + i) * a.a3) >> 16;
            if (!runs || moves[runs - 1] != move) moves[runs] = move, masks[runs++] = 0;
            masks[runs - 1] |= 1ull << i;
        }
        for (int y = 0; y < height; ++y) {
            int first = 0, last = runs;
            while (first < last && !inside(y + moves[first], height)) ++first;
            while (first < last && !inside(y + moves[last - 1], height)) --last;
            __m512i pixels[channels] = {};
            for (int run = first; run < last; ++run) {
                const uint8_t *line = in + int64_t(y + moves[run]) * width + x;
                for (int c = 0; c < channels; ++c)
                    pixels[c] = _mm512_mask_loadu_epi8(pixels[c], masks[run], line + c * plane);
            }
            for (int c = 0; c < channels; ++c) store_block(out + c * plane + int64_t(y) * width + x, pixels[c], columns);
        }
    }
}
#else
template <int channels>
void shear_columns(const Fixed &a, const uint8_t *in, uint8_t *out, const Shape &shape) {
    const int width = shape.width, height = shape.height;
    for (int c = 0; c < channels; ++c)
        for (int y = 0; y < height; ++y) {
            const uint8_t *plane = in + c * shape.plane();
            uint8_t *row = out + c * shape.plane() + int64_t(y) * width;
            int32_t y_in = a.a5 + (y << 16);
            for (int x = 0; x < width; ++x, y_in += a.a3)
                row[x] = inside(y_in >> 16, height) ? plane[int64_t(y_in >> 16) * width + x] : 0;
        }
}
#endif

#ifdef OUTSPAN_AVX512
// The first 64 multiples of a step, in halves.
struct Multiples {
    explicit Multiples(int32_t step) {
        for (int i = 0; i < 64; ++i) low[i] = uint16_t(i * step), high[i] = uint16_t((i * step) >> 16);
    }
    // The high halves of 64 positions first, first + step, …, as bytes relative to `origin`.
    __m512i positions(int32_t first, int32_t origin) const {
        const __m512i fraction = _mm512_set1_epi16(int16_t(first)), one = _mm512_set1_epi16(1);
        auto carried = [&](int at) {
            const __m512i lows = _mm512_load_si512(low + at), highs = _mm512_load_si512(high + at);
            const __mmask32 carry = _mm512_cmplt_epu16_mask(_mm512_add_epi16(lows, fraction), lows);
            return _mm512_mask_add_epi16(highs, carry, highs, one);
        };
        const __m512i bytes = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi16_epi8(carried(0))),
                                                 _mm512_cvtepi16_epi8(carried(32)), 1);
        return _mm512_add_epi8(bytes, _mm512_set1_epi8(char((first >> 16) - origin)));
    }
    alignas(64) uint16_t low[64], high[64];
};

// Steps along a row of at most one pixel: 64 neighbours come from a window of 64 columns, so each source row they
// touch is one load and one byte permutation. Several times faster than gathers.
template <int channels>
void affine_fixed(Fixed a, const uint8_t *in, uint8_t *out, const Shape &shape) {
    const int width = shape.width, height = shape.height, count = width < 64 ? width : 64;
    const int64_t plane = shape.plane();
    const Multiples across(a.a0), down(a.a3);
    for (int y = 0; y < height; ++y, a.a2 += a.a1, a.a5 += a.a4)
        for (int start = 0; start < width; start += 64) {
            const int x = block_start(start, width), last = count - 1;
            const int32_t xx = int32_t(a.a2 + int64_t(x) * a.a0), yy = int32_t(a.a5 + int64_t(x) * a.a3);
            const int x_first = xx >> 16, x_last = int((xx + int64_t(last) * a.a0) >> 16);
            const int y_first = yy >> 16, y_last = int((yy + int64_t(last) * a.a3) >> 16);
            const int left = x_first < x_last ? x_first : x_last;
            const int top = y_first < y_last ? y_first : y_last, bottom = y_first < y_last ? y_last : y_first;
            const __m512i columns = across.positions(xx, left), rows = down.positions(yy, top);
            const __mmask64 readable = columns_within(left, 0, width);
            const int from = top > 0 ? top : 0, until = bottom < height - 1 ? bottom : height - 1;
            uint8_t *to = out + int64_t(y) * width + x;
            const uint8_t *window = in + left;
            __m512i pixels[channels] = {};
            for (int row = from; row <= until; ++row) {
                const __mmask64 here = _mm512_cmpeq_epi8_mask(rows, _mm512_set1_epi8(char(row - top)));
                const uint8_t *line = window + int64_t(row) * width;
                for (int c = 0; c < channels; ++c)
                    pixels[c] = _mm512_mask_permutexvar_epi8(pixels[c], here, columns,
                                                             _mm512_maskz_loadu_epi8(readable, line + c * plane));
            }
            for (int c = 0; c < channels; ++c) store_block(to + c * plane, pixels[c], count);
        }
}
#else
template <int channels>
void affine_fixed(Fixed a, const uint8_t *in, uint8_t *out, const Shape &shape) {
    const int width = shape.width, height = shape.height;
    const int64_t plane = shape.plane();
    for (int y = 0; y < height; ++y, a.a2 += a.a1, a.a5 += a.a4) {
        uint8_t *row = out + int64_t(y) * width;
        int32_t xx = a.a2, yy = a.a5;
        for (int x = 0; x < width; ++x, xx += a.a0, yy += a.a3) {
            const bool seen = inside(xx >> 16, width) && inside(yy >> 16, height);
            for (int c = 0; c < channels; ++c)
                row[c * plane + x] = seen ? in[c * plane + int64_t(yy >> 16) * width + (xx >> 16)] : 0;
        }
    }
}
#endif

void affine(const double a[6], const uint8_t *in, uint8_t *out, const Shape &shape) {
    if (a[1] == 0 && a[3] == 0) return translate(a, in, out, shape);
    auto fits = [&a](int x, int y) {
        return std::fabs(x * a[0] + y * a[1] + a[2]) < 32768.0 && std::fabs(x * a[3] + y * a[4] + a[5]) < 32768.0;
    };
    const int w = shape.width, h = shape.height;
    // Pillow asks for the corners alone; the strips by shifted rows and by gathers hold for the same range.
    if (!fits(0, 0) || !fits(w, h) || !fits(0, h) || !fits(w, 0)) {
        const double x = a[2] + a[1] * 0.5 + a[0] * 0.5, y = a[5] + a[4] * 0.5 + a[3] * 0.5;
        return walk(a, in, out, shape, x, y);
    }
    auto fix = [](double v) { return int32_t(std::floor(v * 65536.0 + 0.5)); };
    const Fixed fixed = {fix(a[0]), fix(a[1]), fix(a[2] + a[0] * 0.5 + a[1] * 0.5),
                         fix(a[3]), fix(a[4]), fix(a[5] + a[3] * 0.5 + a[4] * 0.5)};
    if (fixed.a0 == 65536 && fixed.a3 == 0) return shear_rows(fixed, in, out, shape);
    if (fixed.a0 == 65536 && fixed.a1 == 0 && fixed.a2 >> 16 == 0 && fixed.a4 == 65536)
        return shape.channels == 3 ? shear_columns<3>(fixed, in, out, shape) : shear_columns<1>(fixed, in, out, shape);
    shape.channels == 3 ? affine_fixed<3>(fixed, in, out, shape) : affine_fixed<1>(fixed, in, out, shape);
}

// Python's round(value, 15) for |value| <= 1: the nearest multiple of 1e-15, then the double nearest to it.
double round_15(double value) {
    const double product = value * 1e15, error = std::fma(value, 1e15, -product);
    double whole = std::nearbyint(product);
    const double rest = product - whole;
    if (rest == 0.5 && error > 0) whole += 1;
    if (rest == -0.5 && error < 0) whole -= 1;
    return whole / 1e15;
}

void quarter_turns(const uint8_t *in, uint8_t *out, const Shape &shape, bool left) {
    const int64_t side = shape.width;
    for (int c = 0; c < shape.channels; ++c, in += shape.plane(), out += shape.plane())
        for (int64_t y = 0; y < side; ++y)
            for (int64_t x = 0; x < side; ++x)
                out[y * side + x] = left ? in[x * side + side - 1 - y] : in[(side - 1 - x) * side + y];
}

void rotate(const uint8_t *in, uint8_t *out, const Shape &shape, double degrees) {
    const double turn = degrees < 0 ? std::fmod(degrees, 360.0) + 360.0 : std::fmod(degrees, 360.0);
    if (shape.width == shape.height && (turn == 90.0 || turn == 270.0))
        return quarter_turns(in, out, shape, turn == 90.0);
    const double radians = -(turn * (3.141592653589793 / 180.0));
    const double cosine = round_15(std::cos(radians)), sine = round_15(std::sin(radians));
    const double x = shape.width / 2.0, y = shape.height / 2.0;
    const double a[6] = {cosine, sine, cosine * -x + sine * -y + 0.0 + x, -sine, cosine, -sine * -x + cosine * -y + 0.0 + y};
    affine(a, in, out, shape);
}

void horizontal_flip(const uint8_t *RESTRICT in, uint8_t *RESTRICT out, const Shape &shape) {
    const int width = shape.width;
    for (int row = 0; row < shape.channels * shape.height; ++row, in += width, out += width)
        for (int x = 0; x < width; ++x) out[x] = in[width - 1 - x];
}

void vertical_flip(const uint8_t *in, uint8_t *out, const Shape &shape) {
    for (int c = 0; c < shape.channels; ++c)
        for (int y = 0; y < shape.height; ++y)
            std::memcpy(out + c * shape.plane() + int64_t(y) * shape.width,
                        in + c * shape.plane() + int64_t(shape.height - 1 - y) * shape.width, size_t(shape.width));
}

// A square of side magnitude * side about the place, cut at the image's edge.
struct Rectangle {
    int x0, y0, x1, y1;
};

Rectangle rectangle(double magnitude, const float *place, const Shape &shape) {
    auto range = [magnitude](double position, int side, int &start, int &stop) {
        const int length = int(magnitude * side);
        const int first = int(position * side) - length / 2;
        start = first > 0 ? first : 0;
        stop = first + length < side ? first + length : side;
    };
    Rectangle box;
    range(place[0], shape.width, box.x0, box.x1);
    range(place[1], shape.height, box.y0, box.y1);
    return box;
}

void cutout(const uint8_t *in, uint8_t *out, const Shape &shape, const Rectangle &box, const uint8_t *fill) {
    std::memcpy(out, in, size_t(shape.bytes()));
    for (int c = 0; c < shape.channels; ++c)
        for (int y = box.y0; y < box.y1; ++y)
            if (box.x1 > box.x0)
                std::memset(out + c * shape.plane() + int64_t(y) * shape.width + box.x0, fill[c], size_t(box.x1 - box.x0));
}

void cutmix(const uint8_t *in, const uint8_t *partner, uint8_t *out, const Shape &shape, const Rectangle &box) {
    std::memcpy(out, in, size_t(shape.bytes()));
    for (int c = 0; c < shape.channels; ++c)
        for (int y = box.y0; y < box.y1; ++y)
            if (box.x1 > box.x0) {
                const int64_t start = c * shape.plane() + int64_t(y) * shape.width + box.x0;
                std::memcpy(out + start, partner + start, size_t(box.x1 - box.x0));
            }
}

inline int reflect(int position, int side) {
    if (side == 1) return 0;
    const int period = 2 * (side - 1);
    const int phase = ((position % period) + period) % period;
    return phase < side ? phase : period - phase;
}

void random_crop(const uint8_t *in, uint8_t *out, const Shape &shape, double padding, const float *place) {
    auto offset = [padding](double position, int side) {
        const int pad = int(padding * side + 0.5);
        return int(position * (2 * pad + 1)) - pad;
    };
    const int dx = offset(place[0], shape.width), dy = offset(place[1], shape.height), width = shape.width;
    for (int c = 0; c < shape.channels; ++c, in += shape.plane())
        for (int y = 0; y < shape.height; ++y, out += width) {
            const uint8_t *from = in + int64_t(reflect(y + dy, shape.height)) * width;
            shift_row(from, out, width, dx);
            for (int x = 0; x < -dx && x < width; ++x) out[x] = from[reflect(x + dx, width)];
            for (int x = dx > 0 ? (width - dx > 0 ? width - dx : 0) : width; x < width; ++x)
                out[x] = from[reflect(x + dx, width)];
        }
}
