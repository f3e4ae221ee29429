/** Starts the page, and says so where it does not start: a script that did not come, or an error in one of them. */

import("./main.ts").catch((error: unknown) => {
  console.error(error);
  const why = document.createElement("p");
  why.textContent = `The page did not start: ${error}`;
  const cure = document.createElement("p");
  cure.textContent = "The console does not answer, or it is of another version now than this page.";
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = "Load the page again";
  button.addEventListener("click", () => location.reload());
  document.getElementById("page")?.replaceChildren(why, cure, button);
});
