/** What a shared page holds: facts as JSON and curves as packed arrays. server/sharing/packing.py writes it. */
import { parsed } from "../lib/json.js";

/** @typedef {import("../charts/curves.js").Curve} Curve */
/** @typedef {"step" | "time" | "relative"} Axis */

/**
 * @typedef {{id: string, project: string, run: string, status: string, started: string, ended: string | null,
 *   seconds: number | null, epoch: number | null, params: Record<string, unknown>, tags: Record<string,
 *   unknown>, metrics: Record<string, {last: unknown, min: unknown, max: unknown}>, columns: Record<string,
 *   unknown>, [name: string]: any}} Run
 *
 * @typedef {{title: string, made: string, by: string, kind: "run" | "view" | "sweep", filter: string | null,
 *   total: number, leftOut: string[], drawing: Drawing, columns: string[], runs: Run[], metrics: string[],
 *   group: string, params: string[], notes: Note[], record: any, sweep: any, rows: number, curves: Described[], places: {rows: number,
 *   scale: number}[]}} Facts
 *
 * @typedef {{at: string, kind: string, subject: string, actor: string, text: string}} Note
 *
 * @typedef {{axis: Axis, logX: boolean, logY: boolean, smoothing: number, band: boolean, zooms:
 *   Partial<Record<Axis, [number, number]>>, metricZooms: Record<string, [number, number]>}} Drawing
 *
 * @typedef {{run: number, key: number, rows: number, points: number, bucketed: boolean, x: number, low:
 *   number, high: number, bend: number | null}} Described
 *
 * @typedef {{steps: Float64Array, times: Float64Array, inOrder: boolean}} Place times in seconds since 1970
 */

/** The parts of the data: the facts, places, and of each array its high bytes before its low ones. */
const [FACTS, PLACES, VALUES, MINIMA, MAXIMA] = [0, 1, 2, 4, 6];
const LEVELS = 16384; // and some codes beyond them are no numbers
const [POSITIVE_INFINITY, NEGATIVE_INFINITY] = [65534, 65533];

/**
 * The facts of this page and its curves, by metric and then by run.
 * @param {string} text base64 of the compressed data
 */
export async function read(text) {
  const parts = partsOf(await unpacked(bytesOf(text)));
  const facts = /** @type {Facts} */ (parsed(new TextDecoder().decode(parts[FACTS])));
  const places = placesOf(parts[PLACES] ?? new Uint8Array(), facts.places);
  return { facts, curves: new Curves(facts, parts, places) };
}

/** @param {string} text */
function bytesOf(text) {
  const letters = atob(text.trim());
  const bytes = new Uint8Array(letters.length);
  for (let i = 0; i < letters.length; i++) bytes[i] = letters.charCodeAt(i);
  return bytes;
}

/** @param {Uint8Array<ArrayBuffer>} bytes */
async function unpacked(bytes) {
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** @param {Uint8Array<ArrayBuffer>} bytes each part behind its length */
function partsOf(bytes) {
  const lengths = new DataView(bytes.buffer);
  const parts = [];
  for (let at = 0; at < bytes.length;) {
    const length = lengths.getUint32(at, true);
    parts.push(bytes.subarray(at + 4, at + 4 + length));
    at += 4 + length;
  }
  return parts;
}

/**
 * Steps and times, as second differences in groups of seven bits.
 * @param {Uint8Array} bytes
 * @param {{rows: number, scale: number}[]} described
 * @returns {Place[]}
 */
function placesOf(bytes, described) {
  let at = 0;
  const numbers = (/** @type {number} */ rows, /** @type {number} */ scale) => {
    const values = new Float64Array(rows);
    let [value, difference] = [0, 0];
    for (let row = 0; row < rows; row++) {
      let [folded, weight, byte] = [0, 1, 0];
      do {
        byte = bytes[at++] ?? 0;
        folded += (byte & 127) * weight;
        weight *= 128;
      } while (byte & 128);
      difference += folded % 2 ? -(folded + 1) / 2 : folded / 2;
      value += difference;
      values[row] = value * scale;
    }
    return values;
  };
  return described.map(({ rows, scale }) => {
    const steps = numbers(rows, scale);
    const times = numbers(rows, 1 / 1000);
    return { steps, times, inOrder: times.every((time, row) => row === 0 || time >= (times[row - 1] ?? 0)) };
  });
}

/** The curves of a page, unpacked where they are looked at first. */
class Curves {
  /** @param {Facts} facts @param {Uint8Array[]} parts @param {Place[]} places */
  constructor(facts, parts, places) {
    this.facts = facts;
    this.parts = parts;
    this.places = places;
    /** @type {Map<number, {index: number, first: number, firstBucket: number}[]>} */
    this.byKey = new Map();
    let [first, firstBucket] = [0, 0];
    facts.curves.forEach((entry, index) => {
      const listed = this.byKey.get(entry.key) ?? [];
      listed.push({ index, first, firstBucket });
      this.byKey.set(entry.key, listed);
      first += entry.rows;
      if (entry.bucketed) firstBucket += entry.rows;
    });
    /** @type {Map<string, Curve>} */
    this.kept = new Map();
  }

  /**
   * The curves of a metric on an axis, of the runs that are shown.
   * @param {number} key the metric's place among the page's
   * @param {Axis} axis
   * @param {ReadonlySet<string>} visible
   */
  of(key, axis, visible) {
    const curves = [];
    for (const { index, first, firstBucket } of this.byKey.get(key) ?? []) {
      const entry = /** @type {Described} */ (this.facts.curves[index]);
      const run = /** @type {Run} */ (this.facts.runs[entry.run]);
      if (!visible.has(run.id)) continue;
      const name = `${axis} ${index}`;
      const curve = this.kept.get(name) ?? this.unpack(entry, run, axis, first, firstBucket);
      this.kept.set(name, curve);
      curves.push(curve);
    }
    return curves;
  }

  /**
   * @param {Described} entry
   * @param {Run} run
   * @param {Axis} axis
   * @param {number} first row of the curve among those of all
   * @param {number} firstBucket the same among those in buckets
   * @returns {Curve}
   */
  unpack(entry, run, axis, first, firstBucket) {
    const codes = summed(this.codes(VALUES, first, entry.rows));
    const value = numbersOf(codes, entry);
    let [min, max] = /** @type {[Float32Array | null, Float32Array | null]} */ ([null, null]);
    if (entry.bucketed) {
      const below = this.codes(MINIMA, firstBucket, entry.rows);
      const above = this.codes(MAXIMA, firstBucket, entry.rows);
      min = numbersOf(codes.map((code, row) => code - (below[row] ?? 0)), entry); // modulo 2 ** 16
      max = numbersOf(codes.map((code, row) => code + (above[row] ?? 0)), entry);
    }
    const place = /** @type {Place} */ (this.places[entry.x]);
    /** @type {Curve} */
    const curve = {
      run: run.id,
      key: this.facts.metrics[entry.key] ?? "",
      length: entry.rows,
      points: entry.points,
      x: place.steps,
      value,
      min,
      max,
    };
    if (axis === "step") return curve;
    const began = axis === "relative" ? Date.parse(run.started) / 1000 : 0;
    const x = place.times.map((time) => time - began);
    return place.inOrder ? { ...curve, x } : sorted({ ...curve, x });
  }

  /**
   * What was folded into high and low bytes.
   * @param {number} part of the high bytes; the low bytes are the next one
   * @param {number} first
   * @param {number} rows
   */
  codes(part, first, rows) {
    const high = this.parts[part] ?? new Uint8Array();
    const low = this.parts[part + 1] ?? new Uint8Array();
    const codes = new Uint16Array(rows);
    for (let row = 0; row < rows; row++) {
      const folded = ((high[first + row] ?? 0) << 8) | (low[first + row] ?? 0);
      codes[row] = folded & 1 ? ~(folded >> 1) : folded >> 1;
    }
    return codes;
  }
}

/** @param {Uint16Array} differences */
function summed(differences) {
  for (let row = 1; row < differences.length; row++) differences[row] += differences[row - 1] ?? 0;
  return differences;
}

/**
 * @param {Uint16Array} codes
 * @param {Described} scale
 */
function numbersOf(codes, { low, high, bend }) {
  const values = new Float32Array(codes.length);
  const width = (high - low) / LEVELS;
  for (let row = 0; row < codes.length; row++) {
    const code = codes[row] ?? 0;
    const even = low + code * width;
    if (code > LEVELS) values[row] = otherOf(code);
    else values[row] = bend === null ? even : Math.sinh(even) * bend;
  }
  return values;
}

/** @param {number} code */
function otherOf(code) {
  if (code === POSITIVE_INFINITY) return Infinity;
  return code === NEGATIVE_INFINITY ? -Infinity : Number.NaN;
}

/**
 * A curve whose times go back, because an earlier step was logged later, in the order of time.
 * @param {Curve} curve
 * @returns {Curve}
 */
function sorted(curve) {
  const order = [...curve.x.keys()].sort((left, right) => (curve.x[left] ?? 0) - (curve.x[right] ?? 0));
  const moved = (/** @type {Float32Array | null} */ values) =>
    values && Float32Array.from(order, (row) => values[row] ?? Number.NaN);
  return {
    ...curve,
    x: Float64Array.from(order, (row) => curve.x[row] ?? 0),
    value: /** @type {Float32Array} */ (moved(curve.value)),
    min: moved(curve.min),
    max: moved(curve.max),
  };
}
