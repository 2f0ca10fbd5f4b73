// Numbers as people read them.

export function value(number, measure) {
  if (number === null || number === undefined) return "not known";
  return measure.percent ? `${(100 * number).toFixed(1)} %` : number.toFixed(3);
}

export function duration(seconds) {
  if (seconds < 0.0995) return `${Math.max(1, Math.round(1000 * seconds))} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 99.5) return `${Math.round(seconds)} s`;
  if (seconds < 5970) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} days`;
}

export const ago = (seconds) => (seconds < 1 ? "just now" : `${duration(Math.max(1, Math.round(seconds)))} ago`);

export function bytes(count) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) if (count >= size) return `${(count / size).toFixed(1)} ${unit}`;
  return `${Math.round(count)} B`;
}
