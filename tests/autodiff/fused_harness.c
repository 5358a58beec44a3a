/* Calls every kernel of fused.c on buffers of exactly their size; built with sanitizers by test_fused.py. */
#include SOURCE
#include <stdio.h>

static float *floats(long n)
{
    float *t = malloc(n * sizeof(float));
    for (long i = 0; i < n; i++) t[i] = (float)((i * 7919) % 13) - 6;
    return t;
}

int main(void)
{
    const long widths[] = {8, 16, 24, 40};
    long calls = 0;
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (long k = 1; k <= 5; k += 2)
                for (long stride = 1; stride <= 2; stride++)
                    for (long dilation = 1; dilation <= 2; dilation++)
                        for (long each = 0; each <= 1; each++) {
                            const long Ci = widths[a], Co = widths[b], m = 3, H = 9, W = 11, pad = k / 2 * dilation;
                            const long Ho = (H + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
                            const long Wo = (W + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
                            float *x = floats(m * H * W * Ci), *d = floats(m * Ho * Wo * Co);
                            float *G = floats((each ? m : 1) * k * k * Co * Ci);
                            if (outer(x, d, G, m, H, W, Ci, Co, k, k, pad, pad, dilation, dilation, stride, stride, each))
                                return 2;
                            free(x), free(d), free(G);
                            calls++;
                        }
    for (int a = 0; a < 4; a++) {
        const long m = 3, P = 70, C = widths[a];
        float *t[4], *by_channel[5], *out = floats(m * P * C);
        double *totals = malloc(5 * m * C * sizeof(double));
        for (int i = 0; i < 4; i++) t[i] = floats(m * P * C);
        for (int i = 0; i < 5; i++) by_channel[i] = floats(C);
        sums(t[0], t[1], t[2], t[3], totals, m, P, C);
        sums(t[0], t[1], NULL, NULL, totals, m, P, C);
        combine(out, by_channel[4], (const float **)t, (const float **)by_channel, 4, m * P, C);
        float *x = floats(m * 64 * C);
        double *K = calloc(m * m, sizeof(double));
        if (agreement(x, K, m, 64 * C)) return 2;
        for (int i = 0; i < 4; i++) free(t[i]);
        for (int i = 0; i < 5; i++) free(by_channel[i]);
        free(out), free(totals), free(x), free(K);
        calls += 4;
    }
    printf("calls %ld\n", calls);
    return 0;
}
