/**
 * Server-sent events out of text that comes in pieces, as the HTML standard says ("9.2.6 Interpreting an event stream").
 *
 * EventSource cannot send an Authorization header, so the page reads the stream itself. A snapshot is one line of
 * megabytes: pieces of a line are joined once, when its end has come.
 */

export interface ServerEvent {
  readonly kind: string;
  readonly data: string;
}

export class EventParser {
  private pieces: string[] = [];
  private kind = "";
  private data: string[] = [];
  private skipsLineFeed = false;
  private isFirstLine = true;

  /** Return the events that are complete with this piece. */
  feed(text: string): ServerEvent[] {
    const events: ServerEvent[] = [];
    let start = 0;
    if (this.skipsLineFeed && text.length > 0) {
      start = text.startsWith("\n") ? 1 : 0;
      this.skipsLineFeed = false;
    }
    const ends = /\r\n?|\n/g;
    ends.lastIndex = start;
    for (let end = ends.exec(text); end !== null; end = ends.exec(text)) {
      this.pieces.push(text.slice(start, end.index));
      start = ends.lastIndex;
      this.skipsLineFeed = end[0] === "\r" && start === text.length;
      const event = this.line(this.joined());
      if (event !== null) events.push(event);
    }
    if (start < text.length) this.pieces.push(text.slice(start));
    return events;
  }

  private joined(): string {
    const line = this.pieces.length === 1 ? (this.pieces[0] ?? "") : this.pieces.join("");
    this.pieces = [];
    if (!this.isFirstLine) return line;
    this.isFirstLine = false;
    return line.startsWith("\ufeff") ? line.slice(1) : line;
  }

  private line(line: string): ServerEvent | null {
    if (line === "") return this.dispatch();
    const colon = line.indexOf(":");
    if (colon === 0) return null;
    const field = colon < 0 ? line : line.slice(0, colon);
    const from = line.charAt(colon + 1) === " " ? colon + 2 : colon + 1;
    const value = colon < 0 ? "" : line.slice(from);
    if (field === "event") this.kind = value;
    else if (field === "data") this.data.push(value);
    return null;
  }

  private dispatch(): ServerEvent | null {
    const { kind, data } = this;
    this.kind = "";
    this.data = [];
    return data.length === 0 ? null : { kind: kind || "message", data: data.join("\n") };
  }
}
