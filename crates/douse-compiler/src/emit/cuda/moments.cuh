
// Sums over values x of x - pivot and of its square, from which the same about any other number follow: with d = pivot - m,
//   sum (x - m) = sum (x - pivot) + n d,   sum (x - m)^2 = sum (x - pivot)^2 + d (sum (x - pivot) + sum (x - m)).
// The nearer the pivot is to the mean, the less is lost in that. It is the mean of n values of all N: then what is subtracted is at most N / n times what is left.
DEVICE float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE double multiply_add(double a, double b, double c) { return fma(a, b, c); }

template <class T> struct Moments {
  struct Accumulator { int64 count; T pivot, sum, squares; };
  // Of a few values, whose pivot is the mean of those before them, or of the first that are taken together.
  struct Near { T pivot, sum, squares; int count; bool first; };
  static DEVICE Accumulator neutral() { return Accumulator{0, (T)0, (T)0, (T)0}; }
  static DEVICE Near near(const Accumulator &a) { return Near{a.pivot, (T)0, (T)0, 0, a.count == 0}; }
  template <int N> static DEVICE void take(Near &a, const T (&x)[N], int count) {
    T total = (T)0;
#pragma unroll
    for (int k = 0; k < N; ++k) total += x[k];
    const T mean = count == N ? total * (T)(1.0 / N) : x[0];
    if (a.first) a.pivot = isfinite(mean) ? mean : (T)0;
    a.first = false;
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (k < count) {
        const T off = x[k] - a.pivot;
        a.sum += off;
        a.squares = multiply_add(off, off, a.squares);
      }
    }
    a.count += count;
  }
  static DEVICE void take(Near &a, T x) {
    const T one[1] = {x};
    take(a, one, 1);
  }
  static DEVICE void settle(Accumulator &a, const Near &few) {
    a.count += few.count;
    a.pivot = few.pivot;
    a.sum += few.sum;
    a.squares += few.squares;
    if (a.count > 0) move(a, a.pivot + a.sum / (T)a.count);
  }
  // To another pivot; only a finite one serves.
  static DEVICE void move(Accumulator &a, T pivot) {
    if (!isfinite(pivot)) return;
    const T step = a.pivot - pivot, sum = multiply_add((T)a.count, step, a.sum);
    const T squares = multiply_add(step, a.sum + sum, a.squares);
    a.pivot = pivot;
    a.sum = sum;
    a.squares = squares < (T)0 ? (T)0 : squares;
  }
  // About the mean of both.
  static DEVICE void join(Accumulator &a, Accumulator b) {
    if (b.count == 0) return;
    if (a.count == 0) { a = b; return; }
    const T far = multiply_add((T)b.count, b.pivot - a.pivot, b.sum);
    const T mean = a.pivot + (a.sum + far) / (T)(a.count + b.count), pivot = isfinite(mean) ? mean : a.pivot;
    move(a, pivot);
    move(b, pivot);
    a.count += b.count;
    a.sum += b.sum;
    a.squares += b.squares;
  }
  // What lanes need to know of each other before, and after.
  struct Total {
    struct Accumulator { int64 count; T total; };
    static DEVICE Accumulator neutral() { return Accumulator{0, (T)0}; }
    static DEVICE void join(Accumulator &a, Accumulator b) { a.count += b.count; a.total += b.total; }
  };
  struct Sums {
    struct Accumulator { T sum, squares; };
    static DEVICE Accumulator neutral() { return Accumulator{(T)0, (T)0}; }
    static DEVICE void join(Accumulator &a, Accumulator b) { a.sum += b.sum; a.squares += b.squares; }
  };
  // Those of all lanes, about a pivot that is their mean, roughly: what rounding takes from it stays in the sums.
  template <class Lanes, int SITE> static DEVICE Accumulator across(Accumulator a) {
    const T own = multiply_add((T)a.count, a.pivot, a.sum);
    const typename Total::Accumulator all = Across<Total, Lanes>::template reduce<SITE>(typename Total::Accumulator{a.count, own});
    move(a, all.count > 0 ? all.total / (T)all.count : (T)0);
    const typename Sums::Accumulator sums = Across<Sums, Lanes>::template reduce<SITE>(typename Sums::Accumulator{a.sum, a.squares});
    return Accumulator{all.count, a.pivot, sums.sum, sums.squares};
  }
  // The sums about m. Of numbers so large that squares are infinite, the deviations are not known; of what is no number, nothing is.
  static DEVICE T deviations(const Accumulator &a, T m) {
    return isfinite(a.sum) ? (T)fma((double)a.count, (double)a.pivot - m, (double)a.sum) : m - m;
  }
  static DEVICE T squares(const Accumulator &a, T m) {
    if (!isfinite(a.squares)) return a.squares + (m - m);
    const double step = (double)a.pivot - m, sum = fma((double)a.count, step, (double)a.sum);
    const double squares = fma(step, a.sum + sum, (double)a.squares);
    return (T)(squares < 0 ? 0 : squares);
  }
};
