/* Optional kernels for float32 on one CPU thread, values channels last: (sample, row, column, channel).
 *
 * Everything here has a plain torch twin in layers.py, channels.py and recorder.py that gives the same numbers up to
 * rounding; these only read memory less often. Vectors have eight lanes, or sixteen where the processor has them; channel
 * counts are multiples of eight (see fused.py).
 * Sums over many positions are kept in float for one row of an image and then added in double. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

typedef float v8 __attribute__((vector_size(32), aligned(4), may_alias));
typedef double d8 __attribute__((vector_size(64)));

static inline v8 splat(float a) { return (v8){a, a, a, a, a, a, a, a}; }

/* Sixteen lanes where the processor has them and that many channels are left. */
#ifdef __AVX512F__
enum { WIDE = 16 };
typedef float v16 __attribute__((vector_size(64), aligned(4), may_alias));
#else
enum { WIDE = 0 };
typedef v8 v16; /* never called */
#endif

/* Copies one image into `to`, with `pad` zero rows and columns around it. */
static void pad_image(const float *from, float *to, long H, long W, long C, long ph, long pw)
{
    const long row = (W + 2 * pw) * C;
    memset(to, 0, ph * row * sizeof(float));
    memset(to + (H + ph) * row, 0, ph * row * sizeof(float));
    for (long h = 0; h < H; h++) {
        float *line = to + (h + ph) * row;
        memset(line, 0, pw * C * sizeof(float));
        memcpy(line + pw * C, from + h * W * C, W * C * sizeof(float));
        memset(line + (pw + W) * C, 0, pw * C * sizeof(float));
    }
}

/* Q output channels x V vectors of input channels of Σ_p δ(p) x(p)ᵀ over `rows` rows, added to G, or written to it at first. */
#define OUTER(Q, V, L)                                                                                         \
    static inline void outer_##Q##_##V##_##L(const float *x, const float *d, float *G, long rows, long Wo,      \
                                             long Ci, long Co, long xrow, long step, int first)                 \
    {                                                                                                           \
        v##L acc[Q][V];                                                                                         \
        for (int q = 0; q < Q; q++)                                                                             \
            for (int v = 0; v < V; v++) acc[q][v] = first ? (v##L){0} : *(v##L *)(G + q * Ci + L * v);          \
        for (long r = 0; r < rows; r++) {                                                                       \
            const float *a = x + r * xrow, *b = d + r * Wo * Co;                                                \
            for (long c = 0; c < Wo; c++, a += step, b += Co) {                                                 \
                v##L in[V];                                                                                     \
                for (int v = 0; v < V; v++) in[v] = *(const v##L *)(a + L * v);                                 \
                for (int q = 0; q < Q; q++)                                                                     \
                    for (int v = 0; v < V; v++) acc[q][v] += b[q] * in[v];                                      \
            }                                                                                                   \
        }                                                                                                       \
        for (int q = 0; q < Q; q++)                                                                             \
            for (int v = 0; v < V; v++) *(v##L *)(G + q * Ci + L * v) = acc[q][v];                              \
    }
OUTER(6, 2, 8) OUTER(4, 2, 8) OUTER(2, 2, 8) OUTER(8, 1, 8) OUTER(16, 1, 16) OUTER(8, 1, 16)

/* Σ_p δ(p) x(p)ᵀ over `rows` rows of Wo positions: G (outputs, Ci), added to or written at first; δ is Co wide. */
static void outer_block(const float *x, const float *d, float *G, long rows, long Wo, long Ci, long Co, long xrow, long step,
                        long outputs, int first)
{
    for (long ci = 0; ci + 16 <= Ci; ci += 16)
        for (long co = 0; co < outputs;) {
            const long left = outputs - co, q = WIDE ? (left >= 16 ? 16 : 8) : left >= 6 ? 6 : left >= 4 ? 4 : 2;
            float *to = G + co * Ci + ci;
            if (q == 16) outer_16_1_16(x + ci, d + co, to, rows, Wo, Ci, Co, xrow, step, first);
            else if (q == 8) outer_8_1_16(x + ci, d + co, to, rows, Wo, Ci, Co, xrow, step, first);
            else if (q == 6) outer_6_2_8(x + ci, d + co, to, rows, Wo, Ci, Co, xrow, step, first);
            else if (q == 4) outer_4_2_8(x + ci, d + co, to, rows, Wo, Ci, Co, xrow, step, first);
            else outer_2_2_8(x + ci, d + co, to, rows, Wo, Ci, Co, xrow, step, first);
            co += q;
        }
    if (Ci % 16) /* the last eight */
        for (long co = 0; co < outputs; co += 8)
            outer_8_1_8(x + Ci - 8, d + co, G + co * Ci + Ci - 8, rows, Wo, Ci, Co, xrow, step, first);
}

/* G (parts, KH, KW, Co, Ci): the sums over equal parts of the samples. */
int outer(const float *x, const float *d, float *G, long m, long H, long W, long Ci, long Co, long KH, long KW, long ph,
          long pw, long dh, long dw, long sh, long sw, long parts)
{
    const long Hp = H + 2 * ph, Wp = W + 2 * pw, row = Wp * Ci, size = KH * KW * Co * Ci;
    const long Ho = (Hp - dh * (KH - 1) - 1) / sh + 1, Wo = (Wp - dw * (KW - 1) - 1) / sw + 1;
    const long block = Wo >= 64 ? 1 : 64 / Wo; /* rows at a time: about 64 positions */
    const int padded = ph || pw;
    float *scratch = padded ? malloc(Hp * row * sizeof(float)) : NULL;
    if (padded && !scratch) return 1;
    for (long n = 0, part = 0; n < m; n++) {
        const float *image = x + n * H * W * Ci, *delta = d + n * Ho * Wo * Co;
        const int first = n == 0 || n == m * (part + 1) / parts;
        part += first && n;
        float *g = G + part * size;
        if (padded) {
            pad_image(image, scratch, H, W, Ci, ph, pw);
            image = scratch;
        }
        for (long h = 0; h < Ho; h += block)
            for (long k = 0; k < KH * KW; k++)
                outer_block(image + (h * sh + (k / KW) * dh) * row + (k % KW) * dw * Ci, delta + h * Wo * Co, g + k * Co * Ci,
                            Ho - h < block ? Ho - h : block, Wo, Ci, Co, sh * row, sw * Ci, Co, h == 0 && first);
    }
    free(scratch);
    return 0;
}

/* Σ_p δ(p) x(p) of 8 channels over `rows` rows of Wo positions, C channels apart in δ and `step` floats in x. */
static inline v8 dotted(const float *x, const float *d, long rows, long Wo, long C, long xrow, long step)
{
    v8 acc[4] = {splat(0), splat(0), splat(0), splat(0)}; /* apart, so that no sum waits for the one before */
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * xrow, *b = d + r * Wo * C;
        long c = 0;
        for (; c + 4 <= Wo; c += 4, a += 4 * step, b += 4 * C)
            for (int i = 0; i < 4; i++) acc[i] += *(const v8 *)(a + i * step) * *(const v8 *)(b + i * C);
        for (; c < Wo; c++, a += step, b += C) acc[0] += *(const v8 *)a * *(const v8 *)b;
    }
    return (acc[0] + acc[1]) + (acc[2] + acc[3]);
}

/* The same for depthwise kernels: G (KH, KW, C). */
int outer_depthwise(const float *x, const float *d, float *G, long m, long H, long W, long C, long KH, long KW, long ph, long pw,
                    long dh, long dw, long sh, long sw)
{
    const long Hp = H + 2 * ph, Wp = W + 2 * pw, row = Wp * C;
    const long Ho = (Hp - dh * (KH - 1) - 1) / sh + 1, Wo = (Wp - dw * (KW - 1) - 1) / sw + 1;
    const long block = Wo >= 64 ? 1 : 64 / Wo; /* rows at a time: about 64 positions */
    float *scratch = ph || pw ? malloc(Hp * row * sizeof(float)) : NULL;
    if ((ph || pw) && !scratch) return 1;
    memset(G, 0, KH * KW * C * sizeof(float));
    for (long n = 0; n < m; n++) {
        const float *image = x + n * H * W * C, *delta = d + n * Ho * Wo * C;
        if (scratch) {
            pad_image(image, scratch, H, W, C, ph, pw);
            image = scratch;
        }
        for (long h = 0; h < Ho; h += block)
            for (long k = 0; k < KH * KW; k++)
                for (long c = 0; c < C; c += 8)
                    *(v8 *)(G + k * C + c) += dotted(image + (h * sh + (k / KW) * dh) * row + (k % KW) * dw * C + c,
                                                     delta + h * Wo * C + c, Ho - h < block ? Ho - h : block, Wo, C, sh * row,
                                                     sw * C);
    }
    free(scratch);
    return 0;
}

/* Q neighbouring outputs of eight channels: Σ_k w(k) x(p + k), x `row` floats a row, `step` between outputs. */
#define TAPS(Q, L)                                                                                             \
    static inline void taps_##Q##_##L(const float *x, const float *w, float *out, long KH, long KW, long C,     \
                                      long down, long right, long step)                                         \
    {                                                                                                           \
        v##L acc[Q];                                                                                            \
        for (int q = 0; q < Q; q++) acc[q] = (v##L){0};                                                         \
        for (long i = 0; i < KH; i++)                                                                           \
            for (long j = 0; j < KW; j++, w += C) {                                                             \
                const v##L tap = *(const v##L *)w;                                                              \
                const float *a = x + i * down + j * right;                                                      \
                for (int q = 0; q < Q; q++) acc[q] += tap * *(const v##L *)(a + q * step);                      \
            }                                                                                                   \
        for (int q = 0; q < Q; q++) *(v##L *)(out + q * C) = acc[q];                                            \
    }
TAPS(8, 8) TAPS(4, 8) TAPS(1, 8) TAPS(8, 16) TAPS(4, 16) TAPS(1, 16)

/* All `wide` outputs of a row, `lanes` channels of them. */
#define ROW_OF_TAPS(L)                                                                                         \
    static void row_of_taps_##L(const float *x, const float *w, float *out, long wide, long KH, long KW, long C, \
                                long down, long right, long step)                                               \
    {                                                                                                           \
        long v = 0;                                                                                             \
        for (; v + 8 <= wide; v += 8) taps_8_##L(x + v * step, w, out + v * C, KH, KW, C, down, right, step);   \
        for (; v + 4 <= wide; v += 4) taps_4_##L(x + v * step, w, out + v * C, KH, KW, C, down, right, step);   \
        for (; v < wide; v++) taps_1_##L(x + v * step, w, out + v * C, KH, KW, C, down, right, step);           \
    }
ROW_OF_TAPS(8) ROW_OF_TAPS(16)

/* Depthwise kernels w (C, KH, KW): w ∗ x from (m, H, W, C) to (m, Ho, Wo, C), or wᵀ ∗ x back from there, which is the
 * kernel turned round on x with its rows and columns apart. */
int depthwise(const float *x, const float *w, float *out, long m, long H, long W, long C, long Ho, long Wo, long KH, long KW,
              long ph, long pw, long dh, long dw, long sh, long sw, long back)
{
    const long Hi = back ? Ho : H, Wi = back ? Wo : W, high = back ? H : Ho, wide = back ? W : Wo, taps = KH * KW;
    const long Hp = back ? H + dh * (KH - 1) : H + 2 * ph, Wp = back ? W + dw * (KW - 1) : W + 2 * pw, row = Wp * C;
    const long top = back ? dh * (KH - 1) - ph : ph, left = back ? dw * (KW - 1) - pw : pw;
    const long down = back ? 1 : sh, right = (back ? 1 : sw) * C, apart = back ? sh : 1, beside = back ? sw : 1;
    float *by_tap = malloc(taps * C * sizeof(float)), *image = calloc(Hp * row, sizeof(float)); /* zeros where x is not */
    if (!by_tap || !image) {
        free(by_tap), free(image);
        return 1;
    }
    for (long k = 0; k < taps; k++)
        for (long c = 0; c < C; c++) by_tap[(back ? taps - 1 - k : k) * C + c] = w[c * taps + k];
    for (long n = 0; n < m; n++) {
        for (long h = 0; h < Hi; h++) {
            const float *from = x + (n * Hi + h) * Wi * C;
            float *to = image + (top + h * apart) * row + left * C;
            if (beside == 1) memcpy(to, from, Wi * C * sizeof(float));
            else
                for (long v = 0; v < Wi; v++) memcpy(to + v * beside * C, from + v * C, C * sizeof(float));
        }
        for (long h = 0; h < high; h++)
            for (long c = 0; c < C;) {
                const float *from = image + h * down * row + c;
                float *to = out + (n * high + h) * wide * C + c;
                const int lanes = WIDE && c + 16 <= C ? 16 : 8;
                if (lanes == 16) row_of_taps_16(from, by_tap + c, to, wide, KH, KW, C, dh * row, dw * C, right);
                else row_of_taps_8(from, by_tap + c, to, wide, KH, KW, C, dh * row, dw * C, right);
                c += lanes;
            }
    }
    free(by_tap), free(image);
    return 0;
}

/* --- 3x3 kernels, stride 1, padding 1, by Winograd's F(4x4, 3x3): 36 products in the place of 144 for sixteen outputs.
 *
 *     y = Aᵀ[(G w Gᵀ) ∘ (Bᵀ d B)]A      for a tile of 4x4 outputs y and the 6x6 inputs d around it
 *     ∂L/∂w = Gᵀ[(A δ Aᵀ) ∘ (Bᵀ d B)]G  for the gradient δ of y
 *
 * The points p are 0, ±a, ±b and ∞ with a² = 1/2 and b² = 2, which round less coarsely than 1 and 2 would, though more coarsely
 * than a sum in float. Rows of A are powers of p, those of G (1, p, p²) over the product
 * of the distances to the other points, which is 1, −3/2 and 6. The 36 places of a tile's transform are `spots`; for each of them
 * the sum over channels is a matrix product. Tiles of all samples are counted through, and handled some at a time, so that what
 * is between stays in the cache. */

enum { TILE = 4, SIDE = TILE + 2, SPOTS = SIDE * SIDE };
enum { TILES = 36, ROWS = 12, GAP = 16 }; /* tiles at a time, which ROWS divides; GAP spreads spots over the cache */
static const float POINT_A = 0.70710678118654752f, POINT_B = 1.41421356237309505f;

typedef struct { const float *image, *zeros; long H, W, C, n, top, left; } Walk; /* over the tiles of all samples */
typedef struct { const float *row[SIDE]; long from, to; } Tile; /* columns `from` up to `to` are inside of the image */

/* `side` x `side` positions from `before` above and left of the tile's outputs; rows outside are zeros. */
static inline Tile seen(const Walk *walk, const int side, const int before)
{
    const long W = walk->W, C = walk->C, left = walk->left - before;
    Tile tile = {{0}, left < 0 ? -left : 0, W - left < side ? W - left : side};
    for (int i = 0; i < side; i++) {
        const long h = walk->top - before + i;
        tile.row[i] = h >= 0 && h < walk->H ? walk->image + ((walk->n * walk->H + h) * W + left) * C : walk->zeros;
    }
    return tile;
}

static inline void step_on(Walk *walk)
{
    walk->left += TILE;
    if (walk->left >= walk->W) walk->left = 0, walk->top += TILE;
    if (walk->top >= walk->H) walk->top = 0, walk->n++;
}

/* One column of a transform, of vectors with L lanes: Bᵀ d, A δ, Aᵀ y, G w and Gᵀ s. */
#define COLUMNS(L)                                                                                             \
    static inline void column_input_##L(const v##L *d, v##L *t)                                                \
    {                                                                                                          \
        const v##L even_a = d[4] - 2 * d[2], odd_a = POINT_A * (d[3] - 2 * d[1]);                              \
        const v##L even_b = d[4] - 0.5f * d[2], odd_b = POINT_B * (d[3] - 0.5f * d[1]);                        \
        t[0] = d[0] + d[4] - 2.5f * d[2];                                                                      \
        t[1] = even_a + odd_a, t[2] = even_a - odd_a, t[3] = even_b + odd_b, t[4] = even_b - odd_b;            \
        t[5] = d[1] + d[5] - 2.5f * d[3];                                                                      \
    }                                                                                                          \
    static inline void column_spread_##L(const v##L *d, v##L *t)                                               \
    {                                                                                                          \
        const v##L even_a = d[0] + 0.5f * d[2], odd_a = POINT_A * (d[1] + 0.5f * d[3]);                        \
        const v##L even_b = d[0] + 2 * d[2], odd_b = POINT_B * (d[1] + 2 * d[3]);                              \
        t[0] = d[0], t[5] = d[3];                                                                              \
        t[1] = even_a + odd_a, t[2] = even_a - odd_a, t[3] = even_b + odd_b, t[4] = even_b - odd_b;            \
    }                                                                                                          \
    static inline void column_output_##L(const v##L *t, v##L *y)                                               \
    {                                                                                                          \
        const v##L even_a = t[1] + t[2], odd_a = POINT_A * (t[1] - t[2]);                                      \
        const v##L even_b = t[3] + t[4], odd_b = POINT_B * (t[3] - t[4]);                                      \
        y[0] = t[0] + even_a + even_b, y[1] = odd_a + odd_b;                                                   \
        y[2] = 0.5f * even_a + 2 * even_b, y[3] = 0.5f * odd_a + 2 * odd_b + t[5];                             \
    }                                                                                                          \
    static inline void column_weights_##L(const v##L *w, v##L *t)                                              \
    {                                                                                                          \
        const v##L even_a = (2 * w[0] + w[2]) * (-1 / 3.0f), odd_a = w[1] * (-2 / 3.0f * POINT_A);             \
        const v##L even_b = (w[0] + 2 * w[2]) * (1 / 6.0f), odd_b = w[1] * (POINT_B / 6);                      \
        t[0] = w[0], t[5] = w[2];                                                                              \
        t[1] = even_a + odd_a, t[2] = even_a - odd_a, t[3] = even_b + odd_b, t[4] = even_b - odd_b;            \
    }                                                                                                          \
    static inline void column_gradient_##L(const v##L *s, v##L *w)                                             \
    {                                                                                                          \
        const v##L even_a = (s[1] + s[2]) * (-1 / 3.0f), even_b = (s[3] + s[4]) * (1 / 6.0f);                  \
        w[0] = s[0] + 2 * even_a + even_b, w[2] = s[5] + even_a + 2 * even_b;                                  \
        w[1] = (s[1] - s[2]) * (-2 / 3.0f * POINT_A) + (s[3] - s[4]) * (POINT_B / 6);                          \
    }
COLUMNS(8) COLUMNS(16)

/* Bᵀ d B of a tile with SIDE x SIDE inputs, or A δ Aᵀ of one with TILE x TILE: L channels, spots apart by `apart`. */
#define SPREAD(NAME, COLUMN, N, L)                                                                             \
    static inline void NAME##_##L(const Tile *tile, float *to, long c, long C, long apart)                     \
    {                                                                                                          \
        v##L t[SIDE][N], in[N], out[SIDE];                                                                     \
        for (int j = 0; j < N; j++) {                                                                          \
            const int inside = j >= tile->from && j < tile->to;                                                \
            for (int i = 0; i < N; i++) in[i] = inside ? *(const v##L *)(tile->row[i] + j * C + c) : (v##L){0}; \
            COLUMN##_##L(in, out);                                                                             \
            for (int i = 0; i < SIDE; i++) t[i][j] = out[i];                                                   \
        }                                                                                                      \
        for (int i = 0; i < SIDE; i++) {                                                                       \
            COLUMN##_##L(t[i], out);                                                                           \
            for (int j = 0; j < SIDE; j++) *(v##L *)(to + (i * SIDE + j) * apart + c) = out[j];                \
        }                                                                                                      \
    }
SPREAD(spread_input, column_input, SIDE, 8) SPREAD(spread_input, column_input, SIDE, 16)
SPREAD(spread_output, column_spread, TILE, 8) SPREAD(spread_output, column_spread, TILE, 16)

/* The next tile's inputs, or outputs, spread. */
static inline void spread(Walk *walk, float *to, long apart, const int outputs)
{
    const Tile tile = outputs ? seen(walk, TILE, 0) : seen(walk, SIDE, 1);
    const long C = walk->C;
    for (long c = 0; c < C;) {
        const int lanes = WIDE && c + 16 <= C ? 16 : 8;
        if (outputs && lanes == 16) spread_output_16(&tile, to, c, C, apart);
        else if (outputs) spread_output_8(&tile, to, c, C, apart);
        else if (lanes == 16) spread_input_16(&tile, to, c, C, apart);
        else spread_input_8(&tile, to, c, C, apart);
        c += lanes;
    }
    step_on(walk);
}

/* G w Gᵀ of all weights (Co, 3, 3, Ci): U (36, in, out), spots `apart`; the transposed map's have the kernel turned round. */
static void spread_weights(const float *w, float *U, long Ci, long Co, long apart, int transposed)
{
    for (long co = 0; co < Co; co++)
        for (long ci = 0; ci < Ci; ci += 8) {
            v8 t[SIDE][3], in[3], out[SIDE];
            for (int j = 0; j < 3; j++) {
                for (int i = 0; i < 3; i++) {
                    const long k = transposed ? (2 - i) * 3 + 2 - j : i * 3 + j;
                    in[i] = *(const v8 *)(w + (co * 9 + k) * Ci + ci);
                }
                column_weights_8(in, out);
                for (int i = 0; i < SIDE; i++) t[i][j] = out[i];
            }
            for (int i = 0; i < SIDE; i++) {
                column_weights_8(t[i], out);
                for (int j = 0; j < SIDE; j++) {
                    float *to = U + (i * SIDE + j) * apart;
                    if (transposed) *(v8 *)(to + co * Ci + ci) = out[j];
                    else
                        for (int l = 0; l < 8; l++) to[(ci + l) * Co + co] = out[j][l];
                }
            }
        }
}

/* Q rows x V vectors of columns of a matrix product: out (.., N) = a (.., K) u (K, N). */
#define PRODUCT(Q, V, L)                                                                                       \
    static inline void product_##Q##_##V##_##L(const float *a, const float *u, float *out, long K, long N)      \
    {                                                                                                           \
        v##L acc[Q][V];                                                                                         \
        for (int q = 0; q < Q; q++)                                                                             \
            for (int v = 0; v < V; v++) acc[q][v] = (v##L){0};                                                  \
        for (long k = 0; k < K; k++, u += N) {                                                                  \
            v##L b[V];                                                                                          \
            for (int v = 0; v < V; v++) b[v] = *(const v##L *)(u + L * v);                                      \
            for (int q = 0; q < Q; q++)                                                                         \
                for (int v = 0; v < V; v++) acc[q][v] += a[q * K + k] * b[v];                                   \
        }                                                                                                       \
        for (int q = 0; q < Q; q++)                                                                             \
            for (int v = 0; v < V; v++) *(v##L *)(out + q * N + L * v) = acc[q][v];                             \
    }
PRODUCT(6, 2, 8) PRODUCT(12, 1, 8) PRODUCT(12, 1, 16)

static void product(const float *a, const float *u, float *out, long rows, long K, long N)
{
    for (long n = 0; n + 16 <= N; n += 16)
        if (WIDE)
            for (long r = 0; r < rows; r += 12) product_12_1_16(a + r * K, u + n, out + r * N + n, K, N);
        else
            for (long r = 0; r < rows; r += 6) product_6_2_8(a + r * K, u + n, out + r * N + n, K, N);
    if (N % 16)
        for (long r = 0; r < rows; r += 12) product_12_1_8(a + r * K, u + N - 8, out + r * N + N - 8, K, N);
}

/* 1x1 kernels w (O, I), or of wᵀ if `transposed`, of as many pixels: out = w x, plus `more` if there is any. */
int pointwise(const float *x, const float *w, const float *more, float *out, long pixels, long I, long O, long transposed)
{
    float *U = malloc((I * O + ROWS * I + TILES * O) * sizeof(float));
    if (!U) return 1;
    float *X = U + I * O, *Y = X + ROWS * I;
    if (transposed) memcpy(U, w, I * O * sizeof(float));
    else
        for (long o = 0; o < O; o++)
            for (long i = 0; i < I; i++) U[i * O + o] = w[o * I + i];
    for (long start = 0; start < pixels;) {
        const long left = pixels - start, n = left >= TILES ? TILES : left >= ROWS ? ROWS : left, size = n * O;
        const float *from = x + start * I;
        float *to = out + start * O;
        if (n < ROWS) from = memcpy(X, from, n * I * sizeof(float)); /* whose rows behind them are read in vain */
        if (more || n < ROWS) {
            product(from, U, Y, n < ROWS ? ROWS : n, I, O);
            for (long i = 0; i < size; i += 8) {
                v8 value = *(v8 *)(Y + i);
                if (more) value += *(const v8 *)(more + start * O + i);
                *(v8 *)(to + i) = value;
            }
        } else product(from, U, to, n, I, O);
        start += n;
    }
    free(U);
    return 0;
}

/* Aᵀ y A of one tile, plus `more`, to those of its positions that are there; L channels. */
#define GATHER(L)                                                                                              \
    static inline void gather_##L(const float *Y, float *to, const float *more, long c, long C, long W, long high, long wide, \
                                  long apart)                                                                  \
    {                                                                                                          \
        v##L r[TILE][SIDE], in[SIDE], y[TILE];                                                                 \
        for (int j = 0; j < SIDE; j++) {                                                                       \
            for (int i = 0; i < SIDE; i++) in[i] = *(const v##L *)(Y + c + (i * SIDE + j) * apart);            \
            column_output_##L(in, y);                                                                          \
            for (int i = 0; i < TILE; i++) r[i][j] = y[i];                                                     \
        }                                                                                                      \
        for (int i = 0; i < TILE && i < high; i++) {                                                           \
            column_output_##L(r[i], y);                                                                        \
            for (int j = 0; j < TILE && j < wide; j++) {                                                       \
                const long at = (i * W + j) * C + c;                                                           \
                if (more) y[j] += *(const v##L *)(more + at);                                                  \
                *(v##L *)(to + at) = y[j];                                                                     \
            }                                                                                                  \
        }                                                                                                      \
    }
GATHER(8) GATHER(16)

/* The next tile of `out`. */
static inline void gather(Walk *walk, const float *Y, float *out, const float *more, long apart)
{
    const long C = walk->C, W = walk->W, high = walk->H - walk->top, wide = W - walk->left;
    const long at = ((walk->n * walk->H + walk->top) * W + walk->left) * C;
    long c = 0;
    for (; WIDE && c + 16 <= C; c += 16) gather_16(Y, out + at, more ? more + at : NULL, c, C, W, high, wide, apart);
    for (; c < C; c += 8) gather_8(Y, out + at, more ? more + at : NULL, c, C, W, high, wide, apart);
    step_on(walk);
}

static long tiles_of(long side) { return (side + TILE - 1) / TILE; }

/* out = w ∗ x, or wᵀ ∗ x if `transposed`, plus `more` if there is any; x has I channels, out has O. */
int convolve(const float *x, const float *w, const float *more, float *out, long m, long H, long W, long I, long O, long transposed)
{
    const long all = m * tiles_of(H) * tiles_of(W), of_V = TILES * I + GAP, of_Y = TILES * O + GAP, of_U = I * O + GAP;
    float *U = malloc((SPOTS * (of_U + of_V + of_Y) + SIDE * I) * sizeof(float));
    if (!U) return 1;
    float *V = U + SPOTS * of_U, *Y = V + SPOTS * of_V, *zeros = memset(Y + SPOTS * of_Y, 0, SIDE * I * sizeof(float));
    Walk in = {x, zeros, H, W, I, 0, 0, 0}, to = {out, NULL, H, W, O, 0, 0, 0};
    if (transposed) spread_weights(w, U, O, I, of_U, 1);
    else spread_weights(w, U, I, O, of_U, 0);
    for (long start = 0; start < all; start += TILES) {
        const long tiles = all - start < TILES ? all - start : TILES, rows = (tiles + ROWS - 1) / ROWS * ROWS;
        for (long t = 0; t < tiles; t++) spread(&in, V + t * I, of_V, 0);
        for (long s = 0; s < SPOTS; s++) product(V + s * of_V, U + s * of_U, Y + s * of_Y, rows, I, O);
        for (long t = 0; t < tiles; t++) gather(&to, Y + t * O, out, more, of_Y);
    }
    free(U);
    return 0;
}

/* Gᵀ S G for L weights, spots of S `apart`, to kernel positions of G that are `size` apart, or added to them. */
#define GATHER_WEIGHTS(L)                                                                                      \
    static inline void gather_weights_##L(const float *S, long apart, float *G, long size, int add)            \
    {                                                                                                          \
        v##L t[3][SIDE], in[SIDE], out[3];                                                                     \
        for (int j = 0; j < SIDE; j++) {                                                                       \
            for (int i = 0; i < SIDE; i++) in[i] = *(const v##L *)(S + (i * SIDE + j) * apart);                \
            column_gradient_##L(in, out);                                                                      \
            for (int i = 0; i < 3; i++) t[i][j] = out[i];                                                      \
        }                                                                                                      \
        for (int i = 0; i < 3; i++) {                                                                          \
            column_gradient_##L(t[i], out);                                                                    \
            for (int j = 0; j < 3; j++) {                                                                      \
                float *to = G + (3 * i + j) * size;                                                            \
                if (add) out[j] += *(const v##L *)to;                                                          \
                *(v##L *)to = out[j];                                                                          \
            }                                                                                                  \
        }                                                                                                      \
    }
GATHER_WEIGHTS(8) GATHER_WEIGHTS(16)

static void gather_weights(const float *S, long apart, float *G, long count, long size, int add)
{
    long c = 0;
    for (; WIDE && c + 16 <= count; c += 16) gather_weights_16(S + c, apart, G + c, size, add);
    for (; c < count; c += 8) gather_weights_8(S + c, apart, G + c, size, add);
}

/* The same as `outer` for such kernels: G (parts, 3, 3, Co, Ci), or the sum over the parts, (3, 3, Co, Ci), if `together`.
 * Where a part is few tiles, most of the work is to read and write S: some output channels at a time stay in the cache. */
int outer_tiles(const float *x, const float *d, float *G, long m, long H, long W, long Ci, long Co, long parts, long together)
{
    const long sample = tiles_of(H) * tiles_of(W), size = Co * Ci, most = Ci > Co ? Ci : Co;
    const long of_V = TILES * Ci + GAP, of_D = TILES * Co + GAP;
    float *S = malloc((SPOTS * (size + GAP + of_V + of_D) + SIDE * most) * sizeof(float));
    if (!S) return 1;
    float *V = S + SPOTS * (size + GAP), *D = V + SPOTS * of_V, *zeros = memset(D + SPOTS * of_D, 0, SIDE * most * sizeof(float));
    Walk in = {x, zeros, H, W, Ci, 0, 0, 0}, of = {d, zeros, H, W, Co, 0, 0, 0};
    for (long part = 0; part < parts; part++) {
        const long begin = m * part / parts * sample, end = m * (part + 1) / parts * sample;
        const long block = end - begin <= TILES ? 16 : Co;
        for (long start = begin; start < end; start += TILES) {
            const long tiles = end - start < TILES ? end - start : TILES;
            for (long t = 0; t < tiles; t++) spread(&in, V + t * Ci, of_V, 0), spread(&of, D + t * Co, of_D, 1);
            for (long co = 0; co < Co; co += block) {
                const long n = Co - co < block ? Co - co : block, of_S = n * Ci + GAP;
                for (long s = 0; s < SPOTS; s++)
                    outer_block(V + s * of_V, D + s * of_D + co, S + s * of_S, 1, tiles, Ci, Co, 0, Ci, n, start == begin);
                if (end - start <= TILES)
                    gather_weights(S, of_S, G + (together ? 0 : part * 9 * size) + co * Ci, n * Ci, size, together && part);
            }
        }
    }
    free(S);
    return 0;
}

/* --- average pooling ------------------------------------------------------------------------------------------------ */

typedef struct { long from, to; float share; } Window; /* positions of the input, and 1 / how many count */

static Window window(long o, long side, long k, long stride, long pad, long with_padding)
{
    long from = o * stride - pad, to = from + k;
    if (to > side + pad) to = side + pad;
    const long whole = to - from;
    if (from < 0) from = 0;
    if (to > side) to = side;
    return (Window){from, to, 1.0f / (float)(with_padding ? whole : to - from)};
}

/* One row of x, `wide` positions times their shares (all alike: `down`), to places of `line` that are `apart`, or added there. */
#define LAY_ROW(L)                                                                                             \
    static inline void lay_row_##L(const float *row, float *line, const Window *columns, float down, long wide, long C, \
                                   long apart, const int add)                                                  \
    {                                                                                                          \
        for (long w = 0; w < wide; w++) {                                                                      \
            const float share = columns ? down * columns[w].share : down;                                      \
            float *to = line + w * apart * C;                                                                  \
            for (long c = 0; c < C; c += L) {                                                                  \
                v##L value = share * *(const v##L *)(row + w * C + c);                                         \
                if (add) value += *(v##L *)(to + c);                                                           \
                *(v##L *)(to + c) = value;                                                                     \
            }                                                                                                  \
        }                                                                                                      \
    }
LAY_ROW(8) LAY_ROW(16)

/* out (n, C) = share_j Σ_k line_(j step + k) for every j < n; without columns every share is one. */
#define SLIDE(L)                                                                                               \
    static inline void slide_##L(const float *line, float *out, const Window *columns, long n, long C, const long K, long step) \
    {                                                                                                          \
        for (long j = 0; j < n; j++)                                                                           \
            for (long c = 0; c < C; c += L) {                                                                  \
                const float *from = line + j * step * C + c;                                                   \
                v##L sum = *(const v##L *)from;                                                                \
                for (long k = 1; k < K; k++) sum += *(const v##L *)(from + k * C);                             \
                if (columns) sum *= columns[j].share;                                                          \
                *(v##L *)(out + j * C + c) = sum;                                                              \
            }                                                                                                  \
    }
SLIDE(8) SLIDE(16)

/* Means over windows: x (m, H, W, C) to out (m, Ho, Wo, C); `back` is the transposed map, from x (m, Ho, Wo, C).
 * Rows are added up into a line that has zeros around it, and along the line a window slides. */
int pool(const float *x, float *out, long m, long H, long W, long C, long Ho, long Wo, long KH, long KW, long sh, long sw,
         long ph, long pw, long with_padding, long back)
{
    const long length = (back ? W + KW - 1 : W + 2 * pw) * C, n_in = back ? Ho : H, wide = back ? Wo : W;
    const long high = back ? H : Ho, first = back ? KW - 1 - pw : pw, apart = back ? sw : 1;
    const long outputs = back ? W : Wo, step = back ? 1 : sw;
    const int wider = WIDE && C % 16 == 0;
    float *line = calloc(length, sizeof(float));
    Window *columns = malloc(Wo * sizeof(Window));
    if (!line || !columns) {
        free(line), free(columns);
        return 1;
    }
    for (long o = 0; o < Wo; o++) columns[o] = window(o, W, KW, sw, pw, with_padding);
    for (long n = 0; n < m; n++)
        for (long r = 0; r < high; r++) {
            int begun = 0;
            for (long h = 0; h < n_in; h++) { /* the rows of x that count, and how much */
                const long o = back ? h : r, q = back ? r : h;
                if (q < o * sh - ph || q >= o * sh - ph + KH) continue;
                const float down = window(o, H, KH, sh, ph, with_padding).share, *row = x + (n * n_in + h) * wide * C;
                if (wider) lay_row_16(row, line + first * C, back ? columns : NULL, down, wide, C, apart, begun);
                else lay_row_8(row, line + first * C, back ? columns : NULL, down, wide, C, apart, begun);
                begun = 1;
            }
            float *to = out + (n * high + r) * outputs * C;
            if (!begun) memset(to, 0, outputs * C * sizeof(float));
            else if (wider && KW == 3) slide_16(line, to, back ? NULL : columns, outputs, C, 3, step);
            else if (wider) slide_16(line, to, back ? NULL : columns, outputs, C, KW, step);
            else slide_8(line, to, back ? NULL : columns, outputs, C, KW, step);
        }
    free(line), free(columns);
    return 0;
}

/* For every sample and channel the sums over positions of a, a*b, a*e, c, c*b (c and e may be missing): out (5, m, C). */
void sums(const float *a, const float *b, const float *c, const float *e, double *out, long m, long P, long C)
{
    const long run = 64; /* positions summed in float before they go to double */
    for (long n = 0; n < m; n++)
        for (long k = 0; k < C; k += 8) {
            d8 total[5] = {{0}};
            for (long start = 0; start < P; start += run) {
                v8 s[5];
                for (int i = 0; i < 5; i++) s[i] = splat(0);
                const long stop = start + run < P ? start + run : P;
                for (long p = start; p < stop; p++) {
                    const long at = (n * P + p) * C + k;
                    const v8 va = *(const v8 *)(a + at), vb = *(const v8 *)(b + at);
                    s[0] += va;
                    s[1] += va * vb;
                    if (e) s[2] += va * *(const v8 *)(e + at);
                    if (c) {
                        const v8 vc = *(const v8 *)(c + at);
                        s[3] += vc;
                        s[4] += vc * vb;
                    }
                }
                for (int i = 0; i < 5; i++) total[i] += __builtin_convertvector(s[i], d8);
            }
            for (int i = 0; i < 5; i++)
                for (int l = 0; l < 8; l++) out[(i * m + n) * C + k + l] = total[i][l];
        }
}

/* out = constant + Σ_i coefficient_i t_i, constants and coefficients by channel, up to four terms; L channels at a time. */
#define COMBINED(L)                                                                                            \
    static inline void combined_##L(float *out, const float *constant, const float **t, const float **coefficient, \
                                    const int terms, long rows, long C)                                        \
    {                                                                                                          \
        const float *term[4], *factor[4]; /* whose addresses nothing that is written can change */            \
        for (int i = 0; i < terms; i++) term[i] = t[i], factor[i] = coefficient[i];                            \
        for (long r = 0; r < rows * C; r += C)                                                                 \
            for (long k = 0; k < C; k += L) {                                                                  \
                v##L s = *(const v##L *)(constant + k);                                                        \
                for (int i = 0; i < terms; i++) s += *(const v##L *)(term[i] + r + k) * *(const v##L *)(factor[i] + k); \
                *(v##L *)(out + r + k) = s;                                                                    \
            }                                                                                                  \
    }
COMBINED(8) COMBINED(16)

static inline void combined(float *out, const float *constant, const float **t, const float **coefficient, const int terms,
                            long rows, long C)
{
    if (WIDE && C % 16 == 0) combined_16(out, constant, t, coefficient, terms, rows, C);
    else combined_8(out, constant, t, coefficient, terms, rows, C);
}

void combine(float *out, const float *constant, const float **t, const float **coefficient, long terms, long rows, long C)
{
    if (terms == 1) combined(out, constant, t, coefficient, 1, rows, C);
    else if (terms == 2) combined(out, constant, t, coefficient, 2, rows, C);
    else if (terms == 3) combined(out, constant, t, coefficient, 3, rows, C);
    else combined(out, constant, t, coefficient, 4, rows, C);
}

/* --- batch norm, whose formulas are in norms.py; sums are kept in float for one run of positions, then in double ------ */

enum { RUN = 64, BLOCK = 128 }; /* positions that are summed in float; that are written at a time */

/* Σ over all positions of a, a*b, a*e, c, c*b by channel: out (5, C); L channels at a time. */
#define TOTALS(L)                                                                                              \
    static inline void totals_##L(const float *a, const float *b, const float *c, const float *e, double *out, \
                                  long rows, long C, const int with_c, const int with_e)                       \
    {                                                                                                          \
        memset(out, 0, 5 * C * sizeof(double));                                                                \
        for (long start = 0; start < rows; start += RUN) {                                                     \
            const long stop = start + RUN < rows ? start + RUN : rows;                                         \
            for (long k = 0; k < C; k += L) {                                                                  \
                v##L s[5];                                                                                     \
                for (int i = 0; i < 5; i++) s[i] = (v##L){0};                                                  \
                for (long at = start * C + k; at < stop * C; at += C) {                                        \
                    const v##L va = *(const v##L *)(a + at), vb = *(const v##L *)(b + at);                     \
                    s[0] += va, s[1] += va * vb;                                                               \
                    if (with_e) s[2] += va * *(const v##L *)(e + at);                                          \
                    if (with_c) {                                                                              \
                        const v##L vc = *(const v##L *)(c + at);                                               \
                        s[3] += vc, s[4] += vc * vb;                                                           \
                    }                                                                                          \
                }                                                                                              \
                for (int i = 0; i < 5; i++)                                                                    \
                    for (int l = 0; l < L; l++) out[i * C + k + l] += s[i][l];                                 \
            }                                                                                                  \
        }                                                                                                      \
    }
TOTALS(8) TOTALS(16)

static inline void totals(const float *a, const float *b, const float *c, const float *e, double *out, long rows, long C,
                          const int with_c, const int with_e)
{
    if (WIDE && C % 16 == 0) totals_16(a, b, c, e, out, rows, C, with_c, with_e);
    else totals_8(a, b, c, e, out, rows, C, with_c, with_e);
}

static void total(const float *a, const float *b, const float *c, const float *e, double *out, long rows, long C)
{
    if (c && e) totals(a, b, c, e, out, rows, C, 1, 1);
    else if (c) totals(a, b, c, e, out, rows, C, 1, 0);
    else if (e) totals(a, b, c, e, out, rows, C, 0, 1);
    else totals(a, b, c, e, out, rows, C, 0, 0);
}

/* y = γ x̂ + β, and μ, inv, γ in stats (3, C). The variance is centred first where the mean would drown it. */
int normalise(const float *z, const float *gamma, const float *beta, const double *eps, float *y, double *stats, long rows, long C)
{
    double *sum = malloc(5 * C * sizeof(double));
    float *by_channel = malloc(2 * C * sizeof(float)), *centred = NULL;
    if (!sum || !by_channel) {
        free(sum), free(by_channel);
        return 1;
    }
    double *mu = stats, *inv = stats + C, *g = stats + 2 * C;
    int drowned = 0;
    total(z, z, NULL, NULL, sum, rows, C);
    for (long k = 0; k < C; k++) {
        mu[k] = sum[k] / rows;
        inv[k] = sum[C + k] / rows - mu[k] * mu[k]; /* the variance, for now */
        drowned |= mu[k] * mu[k] > 100 * inv[k];
    }
    if (drowned && !(centred = malloc(RUN * C * sizeof(float)))) {
        free(sum), free(by_channel);
        return 1;
    }
    if (drowned) { /* ⟨(z − c)²⟩ − ⟨z − c⟩² with c = μ rounded to float */
        double *first = sum + 2 * C, *second = sum + 3 * C;
        memset(first, 0, 2 * C * sizeof(double));
        for (long start = 0; start < rows; start += RUN) {
            const long n = rows - start < RUN ? rows - start : RUN;
            for (long i = 0; i < n * C; i++) centred[i] = z[start * C + i] - (float)mu[i % C];
            for (long k = 0; k < C; k += 8) {
                v8 s = splat(0), q = splat(0);
                for (long i = k; i < n * C; i += C) {
                    const v8 v = *(const v8 *)(centred + i);
                    s += v, q += v * v;
                }
                for (int l = 0; l < 8; l++) first[k + l] += s[l], second[k + l] += q[l];
            }
        }
        for (long k = 0; k < C; k++) inv[k] = second[k] / rows - first[k] / rows * (first[k] / rows);
    }
    for (long k = 0; k < C; k++) {
        inv[k] = 1 / __builtin_sqrt(inv[k] + *eps);
        g[k] = gamma ? gamma[k] : 1;
        by_channel[k] = (float)(g[k] * inv[k]);
        by_channel[C + k] = (float)((beta ? beta[k] : 0) - mu[k] * g[k] * inv[k]);
    }
    const float *terms[] = {z}, *factors[] = {by_channel};
    combine(y, by_channel + C, terms, factors, 1, rows, C);
    free(sum), free(by_channel), free(centred);
    return 0;
}

/* ẏ = γ inv P(ż) + γ̇ x̂ + β̇, and A3 = ⟨ż⟩, A4 = ⟨x̂ ż⟩ in means (2, C), zeros if frozen; ż, γ̇ and β̇ may be missing. */
int normalise_tangent(const float *z, const float *zt, const double *stats, const double *g_dot, const double *b_dot, float *yt,
                      double *means, long rows, long C, long frozen)
{
    double *sum = calloc(5 * C, sizeof(double));
    float *by_channel = malloc(3 * C * sizeof(float));
    if (!sum || !by_channel) {
        free(sum), free(by_channel);
        return 1;
    }
    if (zt && !frozen) total(zt, z, NULL, NULL, sum, rows, C);
    for (long k = 0; k < C; k++) {
        const double mu = stats[k], inv = stats[C + k], scale = stats[2 * C + k] * inv, moved = g_dot ? g_dot[k] * inv : 0;
        const double A3 = sum[k] / rows, A4 = inv * (sum[C + k] / rows - mu * A3);
        means[k] = A3, means[C + k] = A4;
        by_channel[k] = (float)scale;
        by_channel[C + k] = (float)(moved - scale * inv * A4);
        by_channel[2 * C + k] = (float)(scale * (mu * inv * A4 - A3) + (b_dot ? b_dot[k] : 0) - mu * moved);
    }
    const float *terms[] = {zt ? zt : z, z}, *factors[] = {zt ? by_channel : by_channel + C, by_channel + C};
    combine(yt, by_channel + 2 * C, terms, factors, zt && (g_dot || b_dot || !frozen) ? 2 : 1, rows, C);
    free(sum), free(by_channel);
    return 0;
}

/* The cotangent of ż, γ inv P(δ), if `gzt` is given, and in a dual pass that of z, from δ̇ (perhaps missing), if `gz` is.
 * sums (4, C): Σ δ, Σ δ x̂, Σ δ̇, Σ δ̇ x̂ + δ x̂̇; without them (null) they are neither needed nor computed. */
int normalise_back(const float *delta, const float *z, const float *dot, const float *zt, const double *stats,
                   const double *means, const double *g_dot, float *gz, float *gzt, double *sums, long rows, long C, long frozen)
{
    double *sum = calloc(5 * C, sizeof(double));
    float *b = calloc(7 * C, sizeof(float)); /* gz: of δ, δ̇, ż, z, alone; gzt: of z, alone; and of δ */
    float *of_delta = malloc(C * sizeof(float));
    if (!sum || !b || !of_delta) {
        free(sum), free(b), free(of_delta);
        return 1;
    }
    if (sums) total(delta, z, dot, zt, sum, rows, C);
    for (long k = 0; k < C; k++) {
        const double mu = stats[k], inv = stats[C + k], scale = stats[2 * C + k] * inv;
        const double s1 = sum[k], s2 = inv * (sum[C + k] - mu * s1), t1 = sum[3 * C + k], t2 = inv * (sum[4 * C + k] - mu * t1);
        const double A3 = means && !frozen ? means[k] : 0, A4 = means && !frozen ? means[C + k] : 0;
        const double x3 = inv * (sum[2 * C + k] - A3 * s1 - A4 * s2);
        const double A1 = s1 / rows, A2 = s2 / rows;
        double a = g_dot ? g_dot[k] * inv : 0, alone = 0, on_z = 0;
        if (sums) sums[k] = s1, sums[C + k] = s2, sums[2 * C + k] = t1, sums[3 * C + k] = t2 + x3;
        if (!frozen) {
            a -= scale * inv * A4;
            const double on_hat = -scale * (t2 + x3) / rows - a * A2 + scale * A2 * inv * A4;
            on_z = on_hat * inv;
            alone = -scale * t1 / rows - a * A1 + scale * A2 * inv * A3 - on_z * mu;
            b[2 * C + k] = (float)(-scale * A2 * inv);
            b[5 * C + k] = (float)(-scale * inv * A2);
            b[6 * C + k] = (float)(scale * (mu * inv * A2 - A1));
        }
        of_delta[k] = (float)scale;
        b[k] = (float)a, b[C + k] = (float)scale, b[3 * C + k] = (float)on_z, b[4 * C + k] = (float)alone;
    }
    for (long start = 0; start < rows; start += BLOCK) {
        const long n = rows - start < BLOCK ? rows - start : BLOCK, at = start * C;
        const float *terms[4] = {delta + at}, *factors[4] = {b};
        long count = 1;
        if (dot) terms[count] = dot + at, factors[count++] = b + C;
        if (zt && !frozen) terms[count] = zt + at, factors[count++] = b + 2 * C;
        if (!frozen) terms[count] = z + at, factors[count++] = b + 3 * C;
        if (gz) combine(gz + at, b + 4 * C, terms, factors, count, n, C);
        const float *two[] = {delta + at, z + at}, *with[] = {of_delta, b + 5 * C};
        if (gzt) combine(gzt + at, b + 6 * C, two, with, frozen ? 1 : 2, n, C);
    }
    free(sum), free(b), free(of_delta);
    return 0;
}

/* Four rows of a times four of b, over F columns (the last F % L of them apart), added to K, whose rows are m apart. */
#define DOTS(L, B)                                                                                             \
    static void dots_##L(const float *const *a, const float *const *b, double *K, long m, long F)               \
    {                                                                                                          \
        v##L acc[4][B];                                                                                        \
        for (int i = 0; i < 4; i++)                                                                            \
            for (int j = 0; j < B; j++) acc[i][j] = (v##L){0};                                                 \
        for (long f = 0; f + L <= F; f += L) {                                                                 \
            v##L rows[B];                                                                                      \
            for (int j = 0; j < B; j++) rows[j] = *(const v##L *)(b[j] + f);                                   \
            for (int i = 0; i < 4; i++) {                                                                      \
                const v##L row = *(const v##L *)(a[i] + f);                                                    \
                for (int j = 0; j < B; j++) acc[i][j] += row * rows[j];                                        \
            }                                                                                                  \
        }                                                                                                      \
        for (int i = 0; i < 4; i++)                                                                            \
            for (int j = 0; j < B; j++) {                                                                      \
                float lanes[L];                                                                                \
                memcpy(lanes, &acc[i][j], sizeof(lanes));                                                      \
                for (int half = L / 2; half; half /= 2)                                                        \
                    for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];                                \
                double sum = lanes[0];                                                                         \
                for (long f = F / L * L; f < F; f++) sum += a[i][f] * b[j][f];                                 \
                K[i * m + j] += sum;                                                                           \
            }                                                                                                  \
    }
DOTS(8, 2) DOTS(16, 4)

/* K (m, m) = x xᵀ for x (m, F): float over COLUMNS_SUMMED columns, then double; the half below the diagonal is computed. */
enum { COLUMNS_SUMMED = 1024 };
int gram(const float *x, double *K, long m, long F)
{
    const long side = (m + 3) / 4 * 4, wide = WIDE ? 4 : 2; /* rows that are not there repeat the last */
    double *sums = calloc(side * side, sizeof(double));
    if (!sums) return 1;
    for (long f = 0; f < F; f += COLUMNS_SUMMED)
        for (long i = 0; i < side; i += 4)
            for (long j = 0; j < i + 4; j += wide) {
                const float *a[4], *b[4];
                const long columns = F - f < COLUMNS_SUMMED ? F - f : COLUMNS_SUMMED;
                for (int k = 0; k < 4; k++) a[k] = x + (i + k < m ? i + k : m - 1) * F + f;
                for (int k = 0; k < wide; k++) b[k] = x + (j + k < m ? j + k : m - 1) * F + f;
                if (WIDE) dots_16(a, b, sums + i * side + j, side, columns);
                else dots_8(a, b, sums + i * side + j, side, columns);
            }
    for (long i = 0; i < m; i++)
        for (long j = 0; j <= i; j++) K[i * m + j] = K[j * m + i] = sums[i * side + j];
    free(sums);
    return 0;
}

/* The signs of 64 numbers as bits: 1 where positive. */
static inline uint64_t signs(const float *x)
{
    uint64_t word = 0;
#ifdef __AVX__
    for (int b = 0; b < 8; b++) {
        const __m256 positive = _mm256_cmp_ps(_mm256_loadu_ps(x + 8 * b), _mm256_setzero_ps(), _CMP_GT_OQ);
        word |= (uint64_t)_mm256_movemask_ps(positive) << (8 * b);
    }
#else
    for (int b = 0; b < 64; b++) word |= (uint64_t)(x[b] > 0) << b;
#endif
    return word;
}

/* K_ij += number of units on which the signs of inputs i and j agree. x (m, F), F a multiple of 64. */
int agreement(const float *x, double *K, long m, long F)
{
    const long words = F / 64;
    uint64_t *bits = malloc(m * words * sizeof(uint64_t));
    if (!bits) return 1;
    for (long i = 0; i < m * words; i++) bits[i] = signs(x + i * 64);
    for (long i = 0; i < m; i++)
        for (long j = 0; j <= i; j++) {
            long differ = 0;
            for (long w = 0; w < words; w++) differ += __builtin_popcountll(bits[i * words + w] ^ bits[j * words + w]);
            K[i * m + j] += F - differ;
            if (i != j) K[j * m + i] += F - differ;
        }
    free(bits);
    return 0;
}
